. /opt/lib.sh
# Messages are in memory: the folder that is shared with the host is slow to poll.
data=/run/faults
mkdir -p $data

# config FILE CAMERA...: door and gate are webcams, gate with the multi-planar API, screen is an HDMI input, hall is not a device;
# each has a file of its own. Of the door's controls one is out of range and one does not exist.
config() {
  local file=$1
  shift
  {
    printf '[status]\nlog_interval = "1 s"\n\n[[model]]\nname = "bars"\npath = "/opt/tiny.onnx"\ncard = "/opt/tiny.toml"\n'
    local camera card
    for camera in "$@"; do
      printf '\n[[sink]]\nname = "%s"\ntype = "file"\npath = "%s/%s.jsonl"\ncameras = ["%s"]\n' $camera $data $camera $camera
      printf '\n[[camera]]\nname = "%s"\n[camera.source]\n' $camera
      case $camera in
        door) card=vivid-000-vid-cap ;;
        gate) card=vivid-001-vid-cap ;;
        screen) card=vivid-002-vid-cap ;;
        hall) printf 'type = "pattern"\nwidth = 320\nheight = 180\nfps = 5\n' && continue ;;
      esac
      printf 'type = "v4l2"\ndevice = "%s"\n' "$(node $card)"
      [ $camera = screen ] || printf 'width = 320\nheight = 180\nfps = 25\ntimeout = "2 s"\n'
      [ $camera != door ] || printf 'controls = { brightness = 9999, contrast = 90, no_such_control = 1 }\n'
    done
  } >"$file"
}

size() { stat -c %s "$data/$1.jsonl" 2>/dev/null || echo 0; }
grew() { [ "$(size "$1")" -gt "$2" ]; }
# new CAMERA: waits for another message.
new() { wait_for 60 grew "$1" "$(size "$1")" || { echo "no message of $1 in 60 s"; return 1; }; }

# A camera's returns in the log: their number; the time of the last, in milliseconds, and the length of its absence.
returns() { grep -c "camera $1: back after" visiond.log || true; }
returned() { [ "$(returns "$1")" -gt "$2" ]; }
last_return() { grep "camera $1: back after" visiond.log | tail -n 1; }
returned_at() { date -d "$(last_return "$1" | cut -d ' ' -f 1)" +%s%3N; }
away_for() { echo $((10#$(last_return "$1" | sed 's/.* back after \([0-9]*\)\.\([0-9]\) s.*/\1\200/'))); }

# within_2_s "what" MILLISECONDS
within_2_s() {
  printf '%5d ms  %s\n' "$2" "$1" >>times
  check "$1 ($2 ms)" between "$2" -100000 2000
}

# outage "what" CAMERA COMMAND...: the command costs the camera its stream; it is streaming again 2 s after that.
outage() {
  local what=$1 camera=$2 before
  shift 2
  # Repeated faults are handled more and more slowly, up to 1.5 s.
  sleep 3
  before=$(returns $camera)
  "$@" || fail "$what: the fault" "$*"
  if wait_for 60 returned $camera "$before"; then within_2_s "$what" "$(away_for $camera)"; else fail "$what" "not in 60 s"; fi
}

# repaired "what" CAMERA COMMAND...: the command brings the missing camera back; it is streaming 2 s after that. The
# command may set `since`, in milliseconds, if it continues after that.
repaired() {
  local what=$1 camera=$2 before since=
  shift 2
  before=$(returns $camera)
  "$@" || fail "$what: the repair" "$*"
  since=${since:-$(date +%s%3N)}
  if wait_for 60 returned $camera "$before"; then
    within_2_s "$what" $(($(returned_at $camera) - since))
  else
    fail "$what" "not in 60 s"
  fi
}

# silent CAMERA: it sends nothing for a second. Waits until that is so.
silent() {
  local before i
  for i in 1 2 3 4 5 6; do
    before=$(size "$1")
    sleep 1
    grew "$1" "$before" || return 0
  done
  echo "$1 sends messages still"
  return 1
}

# set_control CAMERA CONTROL=VALUE, by its card's name, wherever it is.
set_control() { v4l2-ctl -d "$(node "$1")" -c "$2"; }
inject() { set_control vivid-000-vid-cap "$1=1"; }

# The last figures of a camera in the log. counted CAMERA WORD: drops by a cause; reopened CAMERA.
figures() { grep "camera $1 .* so far" visiond.log | tail -n 1; }
counted() { figures "$1" | sed -n "s/.*[( ]$2 \([0-9]*\).*/\1/p" | grep . || echo 0; }
reopened() { figures "$1" | sed -n 's/.* \([0-9]*\) restarts.*/\1/p' | grep . || echo 0; }
count_above() { [ "$(counted "$1" "$2")" -gt "$3" ]; }
count_is() { [ "$(counted "$1" "$2")" -eq "$3" ]; }
reopened_above() { [ "$(reopened "$1")" -gt "$2" ]; }

# The longest time between two of a camera's messages, by its frames' own clock, in milliseconds.
longest_gap() {
  jq -s '[.[].monotonic_ns] | [.[1:], .[:-1]] | transpose | map(.[0] - .[1]) | max / 1000000 | floor' "$data/$1.jsonl"
}

# For each line that a camera was lost one that it is back.
lost_and_back() {
  local lost back
  lost=$(grep -c "WARN  camera $1: .*\(; trying again\|signal\)" visiond.log) back=$(grep -c "camera $1: back after" visiond.log)
  [ "$lost" = "$back" ] || { echo "$lost times lost, $back times back"; grep "camera $1: " visiond.log; return 1; }
}

bus=/sys/bus/platform/drivers/vivid
unbind() { echo vivid.0 >$bus/unbind; }
# From when udev has set the door's node up.
bind() { echo vivid.0 >$bus/bind && since=$(stat -c %.3Y "$(node vivid-000-vid-cap)" | tr -d .); }

check "the virtual cameras load" \
  load_vivid n_devs=3 node_types=0x1,0x1,0x1 input_types=0x00,0x00,0xff num_inputs=1,1,1 multiplanar=1,2,1

echo "# faults of one camera"
# A small picture: all of this is emulated.
v4l2-ctl -d "$(node vivid-002-vid-cap)" --set-dv-bt-timings index=5 >/dev/null
config visiond.toml hall door gate screen
start_visiond visiond.toml
for camera in hall door gate screen; do check "$camera is seen" new $camera; done
check "a control out of range is reported with its range" grep -q "brightness.*255" visiond.log
check "an unknown one is reported" grep -q no_such_control visiond.log
check "the others are set" grep -q ': 90$' <(v4l2-ctl -d "$(node vivid-000-vid-cap)" -C contrast)

set_control vivid-000-vid-cap percentage_of_dropped_buffers=60
check "frames that the driver drops are counted as its drops" wait_for 60 count_above door driver 20
set_control vivid-000-vid-cap percentage_of_dropped_buffers=0
check "without opening the camera again" equal "$(reopened door)" 0
for i in 1 2 3; do inject inject_v4l2_buf_flag_error; new door; sleep 0.3; done
check "frames that the driver marks as damaged are counted, each" wait_for 60 count_is door corrupt 3
for control in reduced_framerate timestamp_source; do
  set_control vivid-000-vid-cap $control=1
  check "$control harms nothing" new door
  set_control vivid-000-vid-cap $control=0
done
inject inject_vidioc_qbuf_error
check "a refused QBUF harms nothing" new door
sleep 2
check "nor is the camera opened again for any of these" equal "$(reopened door)" 0

outage "after a fatal error of the stream the door is back" door inject inject_fatal_streaming_error
for call in reqbufs streamon; do
  inject inject_vidioc_${call}_error
  outage "after a fatal error and a refused ${call^^}" door inject inject_fatal_streaming_error
done
outage "after a disconnection" door inject disconnect

set_control vivid-000-vid-cap percentage_of_dropped_buffers=100
check "a camera that is stuck is noticed" wait_for 60 grep -q "camera door: no frame" visiond.log
sleep 3
repaired "after it was stuck" door set_control vivid-000-vid-cap percentage_of_dropped_buffers=0

driver=$(counted door driver)
for wrapped in wrap_sequence_number=1 wrap_timestamp=1; do
  set_control vivid-000-vid-cap $wrapped
  outage "with $wrapped" door inject inject_fatal_streaming_error
  # The driver's number wraps 128 frames after the start.
  sleep 7
  check "it goes on when that has wrapped" new door
  set_control vivid-000-vid-cap "${wrapped%=*}=0"
done
check "and nothing is taken for lost that was not" between $(($(counted door driver) - driver)) 0 2000

mode=0
for fault in "no signal" "no lock" "a signal out of range"; do
  mode=$((mode + 1))
  set_control vivid-002-vid-cap dv_timings_signal_mode=$mode
  check "with $fault the screen sends nothing" silent screen
  repaired "after $fault the screen is back" screen set_control vivid-002-vid-cap dv_timings_signal_mode=0
done
check "the log says what is missing" grep -q "camera screen: .*signal" visiond.log

check "visiond never ended" alive
check "SIGTERM ends it" stop_visiond
check "the door was opened again for each fault" \
  between "$(summary '.cameras[] | select(.name == "door") | .restarts')" 7 16
check "its damaged frames are in the summary" equal "$(summary '.cameras[] | select(.name == "door") | .dropped.corrupt')" 3
for camera in gate hall; do
  check "the $camera was not touched" \
    equal "$(summary ".cameras[] | select(.name == \"$camera\") | .errors + .restarts + .dropped.corrupt")" 0
  check "and was never without a message for 1.5 s" between "$(longest_gap $camera)" 0 1500
done
for camera in door screen; do check "each loss of the $camera and each return is one line" lost_and_back $camera; done
mkdir -p injected && mv summary.json visiond.log $data/*.jsonl injected/

echo "# unplugged"
config visiond.toml hall door gate
start_visiond visiond.toml
for camera in hall door gate; do check "$camera is seen" new $camera; done
for round in $(seq 20); do
  unbind
  # Sometimes back before anybody has looked, sometimes long after.
  sleep "$(((round * 7) % 20))e-1"
  repaired "unplugged $round: the door is back" door bind
done
check "the gate is back, too" new gate
check "visiond never ended" alive
check "the source that is not a device kept running" between "$(longest_gap hall)" 0 1500
for camera in door gate; do check "each loss of the $camera and each return is one line" lost_and_back $camera; done

echo "# under another name"
before=$(node vivid-000-vid-cap)
# Who has the old node open keeps its number, so that the cameras move up.
exec 9<"$before"
unbind
sleep 1
repaired "under another node the door is back" door bind
check "it is another one" test "$(node vivid-000-vid-cap)" != "$before"
check "the gate, too" new gate
exec 9<&-
check "none was taken for another" equal "$(grep -c ' is now .*, it was ' visiond.log || true)" 0
check "SIGTERM ends visiond" stop_visiond
check "its cameras were opened again each time" \
  between "$(summary '[.cameras[] | select(.name == "door" or .name == "gate") | .restarts] | min')" 21 30
mkdir -p unplugged && mv summary.json visiond.log $data/*.jsonl unplugged/

echo "# rights"
config visiond.toml door gate
door=$(node vivid-000-vid-cap)
# root without its privilege over files.
setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search \
  visiond run visiond.toml --summary-json summary.json >visiond.out 2>>visiond.log &
visiond_pid=$!
vm_started+=("$visiond_pid")
check "the door is seen" new door
chmod 000 "$door"
check "an open camera does not mind its rights" new door
inject inject_fatal_streaming_error
check "without rights it is waited for" silent door
check "the log says whose right is missing" wait_for 60 grep -q "camera door: .*permission denied" visiond.log
repaired "with its rights the door is back" door chmod 660 "$door"
check "the gate went on" between "$(longest_gap gate)" 0 1500
check "SIGTERM ends visiond" stop_visiond
