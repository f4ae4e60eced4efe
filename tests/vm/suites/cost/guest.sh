. /opt/lib.sh
# An HDMI input, as webcams of this driver have no 30 frames a second at this size.
check "the virtual camera loads" load_vivid n_devs=1 node_types=0x1 input_types=0xff num_inputs=1
camera=$(node vivid-000-vid-cap)

# The number of the timings of 1920x1080 at 30 frames a second, progressive.
timings() {
  v4l2-ctl -d "$camera" --list-dv-timings | awk '
    /Index:/ { index_ = $2 } /Active width:/ { width = $3 } /Active height:/ { height = $3 } /Frame format:/ { format = $3 }
    /frames per second/ && width == 1920 && height == 1080 && format == "progressive" && /\(30\.00 / { print index_; exit }'
}
check "its signal is 1080p30" v4l2-ctl -d "$camera" --set-dv-bt-timings index="$(timings)"

# What the kernel counted of the camera's thread: nanoseconds on a CPU, and how often it slept.
counted() {
  local task
  for task in /proc/"$visiond_pid"/task/*; do
    [ "$(cat "$task/comm")" != "cam door" ] ||
      echo "$(cut -d' ' -f1 "$task/schedstat") $(sed -n 's/^voluntary_ctxt_switches:[^0-9]*//p' "$task/status")"
  done
}

# measure IO: runs for ten seconds; sets frames, us (a frame), share (thousandths of a core), sleeps (in a hundred frames).
measure() {
  local before after since seconds
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
  check "$1: frames come" flowing door
  before=$(counted) since=$(ms)
  sleep 10
  after=$(counted) since=$(($(ms) - since))
  check "$1: SIGTERM ends it" stop_visiond
  frames=$(summary '.cameras[0].captured')
  us=$(summary '.cameras[0].capture_cpu_us | ceil')
  share=$(((${after% *} - ${before% *}) / 1000 / since))
  sleeps=$((${after#* } - ${before#* }))
  echo "      $1: $frames frames, $us us of CPU each; $((share / 10)).$((share % 10)) % of an emulated core; slept $sleeps times in $since ms"
  check "$1: frames are 1080p YUYV" equal "$(tail -n1 messages.jsonl | jq -c .frame)" '{"width":1920,"height":1080,"format":"yuyv"}'
  check "$1: the way it went" equal "$(summary '.cameras[0].io')" "$1"
  check "$1: at least a hundred frames came" between "$frames" 100 100000
}

measure copy
check "a copy is counted" between "$(summary '.cameras[0].copied_bytes')" $((frames * 4147200)) $(((frames + 2) * 4147200))
copied_us=$us
measure userptr
check "no byte was copied" equal "$(summary '.cameras[0].copied_bytes')" 0
# Emulation and a busy host lengthen every time, those of both runs alike.
check "a frame costs less than two thirds of what it costs with a copy" between "$us" 1 $((copied_us * 2 / 3))
check "the thread sleeps between frames, and does not wake for nothing" between $((sleeps * 100 / frames)) 20 600
