. /opt/lib.sh
# An HDMI input, because webcams of this driver do not deliver 30 frames a second at this size.
check "the virtual camera loads" load_vivid n_devs=1 node_types=0x1 input_types=0xff num_inputs=1
camera=$(node vivid-000-vid-cap)

# The number of the timings of 1920x1080 at 30 frames a second, progressive.
timings() {
  v4l2-ctl -d "$camera" --list-dv-timings | awk '
    /Index:/ { index_ = $2 } /Active width:/ { width = $3 } /Active height:/ { height = $3 } /Frame format:/ { format = $3 }
    /frames per second/ && width == 1920 && height == 1080 && format == "progressive" && /\(30\.00 / { print index_; exit }'
}
check "its signal is 1080p30" v4l2-ctl -d "$camera" --set-dv-bt-timings index="$(timings)"

# The kernel's counts for the camera's thread: nanoseconds on a CPU, and number of sleeps.
counted() {
  local thread ns
  thread=$(grep -lx "cam door" /proc/"$visiond_pid"/task/*/comm)
  read -r ns _ <"${thread%/comm}/schedstat"
  echo "$ns $(sed -n 's/^voluntary_ctxt_switches:[^0-9]*//p' "${thread%/comm}/status")"
}

# The number of the newest message's frame; without jq, which takes the guest most of a second.
newest() {
  local line
  line=$(tail -n1 messages.jsonl) line=${line#*'"sequence":'}
  echo "${line%%,*}"
}

# measure IO: runs for ten seconds; sets frames, best_us (what a frame took in the best of ten seconds), share (thousandths of a
# core), sleeps (in a hundred frames).
#
# Emulation and a busy host lengthen every time, by up to five times from one second to the next, since the kernel counts what
# interrupts do as the thread's that they interrupt, and what the host takes away as well. They never shorten one.
measure() {
  local before after since from to second took_us
  cat >"$1.toml" <<EOF
[[model]]
name = "bars"
path = "/opt/tiny.onnx"
card = "/opt/tiny.toml"
[[camera]]
name = "door"
[camera.source]
type = "v4l2"
device = "$camera"
format = "yuyv"
io = "$1"
[[sink]]
type = "file"
path = "$PWD/messages.jsonl"
EOF
  rm -f messages.jsonl
  start_visiond "$1.toml"
  check "$1: frames arrive" flowing door
  before=$(counted) since=$(ms) after=$before to=$(newest) best_us=
  for second in {1..10}; do
    took_us=${after% *} from=$to
    sleep 1
    after=$(counted) to=$(newest)
    [ "$to" -gt "$from" ] || continue
    took_us=$(((${after% *} - took_us) / 1000 / (to - from)))
    [ "${best_us:-$took_us}" -lt "$took_us" ] || best_us=$took_us
  done
  since=$(($(ms) - since))
  check "$1: SIGTERM ends it" stop_visiond
  frames=$(summary '.cameras[0].captured')
  share=$(((${after% *} - ${before% *}) / 1000 / since))
  sleeps=$((${after#* } - ${before#* }))
  echo "      $1: $frames frames, $(summary '.cameras[0].capture_cpu_us | ceil') us of CPU each, $best_us at best; $((share / 10)).$((share % 10)) % of an emulated core; slept $sleeps times in $since ms"
  check "$1: frames are 1080p YUYV" equal "$(tail -n1 messages.jsonl | jq -c .frame)" '{"width":1920,"height":1080,"format":"yuyv"}'
  check "$1: the I/O method" equal "$(summary '.cameras[0].io')" "$1"
  check "$1: at least a hundred frames arrived" between "$frames" 100 100000
}

# Twice each, in turns, so that the host's load affects both; twice more if the host was so busy that the best of these is no frame's
# cost.
copy_us= userptr_us=
for round in 1 2 3 4; do
  measure copy
  check "copy, round $round: each is counted" between "$(summary '.cameras[0].copied_bytes')" $((frames * 4147200)) $(((frames + 2) * 4147200))
  [ "${copy_us:-$best_us}" -lt "$best_us" ] || copy_us=$best_us
  measure userptr
  check "userptr, round $round: no byte was copied" equal "$(summary '.cameras[0].copied_bytes')" 0
  [ "${userptr_us:-$best_us}" -lt "$best_us" ] || userptr_us=$best_us
  [ $round = 1 ] || [ "$userptr_us" -gt $((copy_us * 2 / 3)) ] || break
done
echo "      at best $userptr_us us a frame by userptr, $copy_us with a copy"
check "a frame costs less than two thirds of what it costs with a copy" between "$userptr_us" 1 $((copy_us * 2 / 3))
check "the thread sleeps between frames, and does not wake without one" between $((sleeps * 100 / frames)) 20 600
