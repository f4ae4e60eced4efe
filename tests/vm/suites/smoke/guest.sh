. /opt/lib.sh
check "the virtual cameras load" load_vivid n_devs=2 node_types=0x1,0x1 input_types=0x00,0x00 num_inputs=1,1 multiplanar=1,2
camera=$(node vivid-000-vid-cap)
check "visiond runs here" visiond --version
check "visiond finds the camera" grep -q vivid <(visiond probe)
check "dpkg knows what is installed" dpkg-query -W -f '${db:Status-Abbrev} ${Version}\n' libc6 systemd
check "no package is broken" eval '! dpkg --audit | grep .'
write_config visiond.toml door="$camera"
sed -i 's/^type = "v4l2"/&\nwidth = 320\nheight = 180\nfps = 25/' visiond.toml
start_visiond visiond.toml
check "its frames reach the sink" flowing door
check "a camera's pages, file descriptors and threads can be read" \
  between $(($(resident_kb "$visiond_pid") > 0 && $(descriptors "$visiond_pid") > 3 && $(threads "$visiond_pid") > 1)) 1 1
check "SIGTERM ends it" stop_visiond
check "it counted its frames" between "$(summary '.cameras[0].captured')" 3 100000
check "each bar was found by its colour" equal "$(tail -n1 messages.jsonl | jq -r '[.detections | sort_by(.box.x)[].label] | join(" ")')" \
  "white yellow cyan green magenta red blue black"
