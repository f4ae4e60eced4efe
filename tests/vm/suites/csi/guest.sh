. /opt/lib.sh
check "a camera" load_vivid n_devs=1 node_types=0x1 input_types=0x00 num_inputs=1 multiplanar=1
camera=$(node vivid-000-vid-cap)
check "its capture channels" start_channels 2
export BOARD_LOG=/run/board BOARD_STATE=/run/stored BOARD_POWER=/run/power
board() { LD_PRELOAD=/opt/board.so "$@"; }
# A camera that only gives damaged frames, or none, must not keep the test.
capture() { LD_PRELOAD=/opt/board.so timeout 60 visiond capture "$@"; }
logged() { grep -qx "$1" $BOARD_LOG; }
last() { grep "^$1 " $BOARD_LOG | tail -n1; }
# A driver that has just been loaded.
reset_board() { rm -f $BOARD_LOG $BOARD_STATE $BOARD_POWER; }
# The control's value that the driver has stored.
stored() { sed -n "s/^$1 //p" $BOARD_STATE; }
# How often the camera's power is on.
power() { local times; times=$(cat $BOARD_POWER 2>/dev/null); echo "${times:-0}"; }
# Not shared with the host, because a user without rights writes there as well.
data=/run/csi
mkdir -p $data
messages() { if [ -f $data/messages.jsonl ]; then grep -c "\"camera\":\"$1\"" $data/messages.jsonl || true; else echo 0; fi; }

# --- probe
check "probe queries the sensor" board visiond probe --camera "$camera"
board visiond probe --camera "$camera" >probe.txt
board visiond probe --json >probe.json
check "probe names driver and card" grep -q 'vi-output, imx219 9-0010 (driver tegra-video, platform:tegra-capture-vi:2, single-planar)' probe.txt
check "its samples fill their words, and are read so" grep -q 'samples of 10 bits: in the high bits of 16, as visiond reads them' probe.txt
check "the rate is the mode's" grep -q 'would use 640x360 rggb10 at 15 fps' probe.txt
stored_controls() { grep -v '^mode' $BOARD_STATE; }
stored_controls >before
board visiond probe --camera "$camera" >/dev/null
check "probe leaves the controls as they were" equal "$(stored_controls)" "$(cat before)"
check "its configuration has the sensor's mode" grep -qx 'sensor_mode = 0' <(jq -r .chosen.camera probe.json)

# --- from probe's configuration to detections; vivid's stamps of a frame's end are ahead of the frame
v4l2-ctl -d "$camera" -c test_pattern=1,timestamp_source=1
# write_csi FILE SED: probe's configuration, changed by a script for sed, with a model and a sink.
write_csi() {
  {
    printf '[http]\nlisten = ["unix:%s/http.sock"]\n\n' $data
    printf '[[model]]\nname = "bars"\npath = "/opt/tiny.onnx"\ncard = "/opt/tiny.toml"\n\n'
    jq -r .chosen.camera probe.json | sed "$2"
    printf '\n[[sink]]\ntype = "file"\npath = "%s/messages.jsonl"\n' $data
  } >"$1"
}
# with_keys FILE KEYS: the same with these keys instead of size, rate and mode.
with_keys() { write_csi "$1" "/^width\|^height\|^fps\|^sensor_mode\|^\[camera.source.controls\]/d; s,^device = .*,&\\n$2,"; }
write_csi as-it-is.toml ""
LD_PRELOAD=/opt/board.so start_visiond as-it-is.toml
check "probe's configuration as it is gives detections" flowing camera 10
check "SIGTERM ends it" stop_visiond
check "of the size and rate that probe says" equal "$(last mode), $(last 'sensor Frame Rate')" "mode 0, sensor Frame Rate 15000000"
# A driver that has just been loaded has stored the shortest exposure.
check "and the mode's own exposure" equal "$(last 'sensor Exposure')" "sensor Exposure 2495"
check "without an error or a warning" eval '! grep -E "ERROR|WARN" visiond.log'
check "the camera's power is off again" equal "$(power)" 0
rm -f $data/messages.jsonl

# --- a smaller size, and controls
with_keys visiond.toml 'width = 320\nheight = 180\nfps = 10\ncontrols.gain = 100\ncontrols.exposure = 90000'
check "the configuration is valid" board visiond check visiond.toml
rm -f $BOARD_LOG
LD_PRELOAD=/opt/board.so start_visiond visiond.toml
check "a sensor that reports no power gives detections" flowing camera 20
check "SIGTERM ends it" stop_visiond
check "each bar was found by its colour" equal "$(tail -n1 $data/messages.jsonl | jq -r '[.detections | sort_by(.box.x)[].label] | join(" ")')" \
  "white yellow cyan green magenta red blue black"
check "the size chose the sensor's mode, before the format" equal "$(last mode)" "mode 1"
check "the sensor has its gain" equal "$(last 'sensor Gain')" "sensor Gain 100"
check "and an exposure that is longer than a frame of its highest rate" equal "$(last 'sensor Exposure')" "sensor Exposure 90000"
check "the rate was set by its control" equal "$(last 'sensor Frame Rate')" "sensor Frame Rate 10000000"
check "the log has no error and no warning" eval '! grep -E "ERROR|WARN" visiond.log'

# --- times: of each message against the frame's true time
jq -r '"\(.sequence) \(.monotonic_ns)"' $data/messages.jsonl | sort >found
sed -n 's/^stamp //p' $BOARD_LOG | sort >true
join found true | awk '{ d = $2 - $3; if (d < 0) d = -d; if (d > worst) worst = d } END { print NR, int(worst / 1000) }' >times
read -r frames worst_us <times
check "times of messages can be compared" between "$frames" 15 100000
if [ "$(uname -m)" = aarch64 ]; then
  check "they are within 1 ms of the truth, whatever the counter started with" between "$worst_us" 0 999
else
  # A PC's program cannot read the counter: a frame's time is when it was received.
  check "without a counter they are the times of arrival" between "$worst_us" 0 1000000
  check "and the log says so" grep -q "off the system's clock" visiond.log
fi

# --- controls: values from an earlier process reach the sensor although the driver has them stored
rm -f $BOARD_LOG
capture --config visiond.toml -n 1 -o again >again.log 2>&1
check "a second process sets the sensor again" equal "$(last 'sensor Gain')" "sensor Gain 100"
sed -i 's/^controls.gain = 100/&\ncontrols.override_enable = 0/' visiond.toml
rm -f $BOARD_LOG
capture --config visiond.toml -n 1 -o again >>again.log 2>&1
check "and does so while it streams, where the override is switched off" \
  equal "$(grep 'sensor Gain' $BOARD_LOG | tr '\n' ' ')" "sensor Gain 16 sensor Gain 99 sensor Gain 100 "
sed -i '/override_enable/d; s/^fps = 10/fps = 60/' visiond.toml
check "a rate that the sensor has not becomes the nearest" \
  grep -q 'the driver has no 60 frames per second at this size, using 15' <(capture --config visiond.toml -n 1 -o again 2>&1)
sed 's/^controls.gain = 100/&\ncontrols.preferred_stride = 700/; s/^fps = 60/fps = 10/' visiond.toml >stride.toml
sed -i 's/^fps = 60/fps = 10/' visiond.toml
capture --config stride.toml --log-level info -n 1 -o stride >stride.log 2>&1
check "rows as far apart as wanted" equal $? 0
# 180 rows of 700 bytes end within a line of the cache, which the kernel refuses.
check "and frames of an odd size without a copy" grep -q '320x180 rggb10 at 10 fps, USERPTR into host memory' stride.log
sed -i '/preferred_stride/d' stride.toml

# --- colours, to the value: squares whose samples a wrong place would darken 64 times
v4l2-ctl -d "$camera" -c test_pattern=4
for format in RG10:rggb10 BA10:grbg10 GB10:gbrg10 BG10:bggr10 RG12:rggb12 BA12:grbg12 GB12:gbrg12 BG12:bggr12; do
  for way in userptr mmap copy; do
    case=${format%:*}-$way word=${format#*:}
    sed "s/^type = \"v4l2\"/&\nformat = \"$word\"\nio = \"$way\"/" visiond.toml >"/run/$case.toml"
    shot() {
      reset_board
      BOARD_FORMAT=${format%:*} capture --config "/run/$case.toml" --json -n 1 -o "/run/$case" >"$case.json" 2>"$case.err" || { cat "$case.err"; return 1; }
      mv "/run/$case"/*.png "$case.png" && echo "$case" >>cases
    }
    check "$case" shot
  done
done

# --- the whole sensor by selftest, against the report's documented form
status=0
reset_board
BOARD_TEST_PATTERN=1 board visiond selftest --camera "$camera" --only board,cameras --json >selftest.json || status=$?
row() { jq -r --arg check "$1" '.rows[] | select(.area == "cameras" and (.check | endswith(": " + $check))) | "\(.outcome) \(.seen)"' selftest.json; }
# An emulated machine may stall for longer than the camera's buffers last: frames may be missing, but none is damaged.
failed() { jq -r '[.rows[] | select(.outcome == "fail") | .check | select(endswith(": frames") | not)] | join(", ")' selftest.json; }
frames() { jq -e ".rows[] | select(.area == \"cameras\" and (.check | endswith(\": frames\"))) | $1" selftest.json; }
# A PC's programs cannot read the counter, so its timestamps fit no clock.
wrong=
[ "$(uname -m)" = aarch64 ] || wrong="$camera: stamps"
check "selftest fails no check that should pass" equal "$(failed)" "$wrong"
check "its status says whether one failed" equal "$status" "$(jq '[.rows[] | select(.outcome == "fail")] | length | if . > 0 then 1 else 0 end' selftest.json)"
check "it shows the idle status" equal "$(row 'input idle')" "info 0 Camera 2, status 0x1 (no power)"
check "and the streaming one" equal "$(row 'input streaming')" "info 0 Camera 2, status 0x0"
check "where the samples are" grep -q "^pass 10 bits in 16: in the top bits, the low bits filled" <(row samples)
check "frames came, and none is damaged" frames '.figures | .frames >= 100 and .damaged == 0'
if [ "$(uname -m)" = aarch64 ]; then
  check "which clock the timestamps are from" grep -q "^pass of the clock .*cntvct" <(row stamps)
fi
check "the colours of the sensor's test pattern" grep -q "^pass white, yellow, cyan, green, magenta, red, blue, black" <(row "colour bar")
check "which is switched off again" equal "$(last 'test pattern'), $(stored 'Test Pattern')" "test pattern 0, 0"
check "I/O methods" grep -q "^pass mmap: yes, userptr: yes, expbuf: yes" <(row I/O)

# --- a bridge: the driver writes other bytes than its format has
reset_board
export BOARD_FORMAT=AB24 BOARD_TEST_PATTERN=1
board visiond selftest --camera "$camera" --only cameras --json >selftest.json
unset BOARD_FORMAT BOARD_TEST_PATTERN
check "selftest names the bytes" grep -q "^fail .*the driver writes A R G B" <(row "colour bar")

# --- faults: a late first frame, broken ones, a reset
v4l2-ctl -d "$camera" -c test_pattern=1
reset_board
rm -f $data/messages.jsonl
export BOARD_FAULTS=1
LD_PRELOAD=/opt/board.so start_visiond visiond.toml
check "the sensor is reset" wait_for 120 logged reset
check "and its frames arrive again" flowing camera 30
check "SIGTERM ends it" stop_visiond
check "broken frames are counted as such, and never inferred" \
  equal "$(jq -s '[.[].detections | length] | min' $data/messages.jsonl) $(summary '.cameras[0].dropped.corrupt > 1')" "8 true"
check "the log says what broke off" grep -q "failed: the driver reports a device error" visiond.log
unset BOARD_FAULTS

# --- modes: the index is the place in the sensor driver's own list
# streams SENSOR KEYS MODE "WHAT THE LOG SAYS"
streams() {
  reset_board
  with_keys case.toml "$2"
  BOARD_SENSOR=$1 capture --config case.toml --cycles 1 --log-level info >case.log 2>&1 &&
    equal "$(last mode)" "mode $3" && ! logged bad && grep -q ": $4, USERPTR into host memory" case.log || { cat case.log; return 1; }
}
hd='width = 1920\nheight = 1080'
check "imx219, 1920x1080 at 30" streams imx219 "$hd\nfps = 30" 2 "1920x1080 rggb10 at 30 fps"
check "imx219, 1280x720 at 60" streams imx219 'width = 1280\nheight = 720\nfps = 60' 4 "1280x720 rggb10 at 60 fps"
check "imx219, a mode that is configured has its own size" streams imx219 "$hd\ncontrols.sensor_mode = 0" 0 "3280x2464 rggb10.*"
check "the log says that the size is another" grep -q 'WARN.*the configured `sensor_mode` has 3280x2464: remove it' case.log
export BOARD_BY_SIZE=1
check "imx219, where the size alone chooses" streams imx219 "$hd\nfps = 30" 2 "1920x1080 rggb10 at 30 fps"
unset BOARD_BY_SIZE
check "imx477, 1920x1080 at 60" streams imx477 "$hd\nfps = 60" 1 "1920x1080 rggb10 at 60 fps"
check "ov5693, 1280x720 at 120" streams ov5693 'width = 1280\nheight = 720\nfps = 120' 2 "1280x720 bggr10 at 120 fps"
check "imx185, all of a size: 12 bits at 60" streams imx185 "$hd\nfps = 60\nformat = \"rggb12\"" 2 "1920x1080 rggb12 at 60 fps"
check "imx185, 10 bits at 30" streams imx185 "$hd\nfps = 30\nformat = \"rggb10\"" 1 "1920x1080 rggb10 at 30 fps"
check "imx274, 1920x1080 at 60" streams imx274 "$hd\nfps = 60" 1 "1920x1080 rggb10 at 60 fps"
# The size, rate and mode that probe proposes.
for choice in imx219:1920x1080:30:2 imx477:1920x1080:60:1 ov5693:1280x720:120:2 imx185:1920x1080:30:0 imx274:1920x1080:60:1; do
  IFS=: read -r name size fps mode <<<"$choice"
  reset_board
  BOARD_SENSOR=$name board visiond probe --json >"$name.json"
  check "$name, probe's choice" equal "$(jq -r '.cameras[0].chosen | "\(.width)x\(.height):\(.fps)"' "$name.json") $(jq -r .chosen.camera "$name.json" | grep ^sensor_mode)" \
    "$size:$fps sensor_mode = $mode"
done
check "which leaves the stored mode" equal "$(stored 'Sensor Mode')" 0

exec 7</dev/capture-vi-channel0
check "a channel that is in use is left out" streams imx219 'width = 1280\nheight = 720\nfps = 60' 4 "1280x720 rggb10 at 60 fps"
exec 7<&-

# --- bypass mode, in which Argus leaves the camera
reset_board
BOARD_BYPASS=1 capture --config visiond.toml --cycles 1 >case.log 2>&1
check "visiond switches bypass mode off" equal "$(last bypass), $(last stamp | cut -d' ' -f1)" "bypass 0, stamp"
with_keys bypass.toml 'timeout = "2 s"\ncontrols.bypass_mode = 1'
check_not "unless it is configured: then no frame comes" capture --config bypass.toml --cycles 1
check "the camera's power is off" equal "$(power)" 0

# --- frames that are all damaged
# camera FILTER: the filter's output for what the API says about the camera.
camera() {
  perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$!\n";
    print $s "GET /api/v1/cameras/camera HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"; print <$s>' $data/http.sock |
    sed '1,/^\r$/d' | jq -r "$1"
}
camera_is() { [ "$(camera "$1")" = "$2" ]; }
opened() { [ "$(grep -c '^mode' $BOARD_LOG)" -ge "$1" ]; }
reset_board
rm -f $data/messages.jsonl
with_keys bad.toml 'width = 320\nheight = 180\nfps = 10\ntimeout = "2 s"'
mv visiond.log faults.log
export BOARD_ALL_BAD=1
LD_PRELOAD=/opt/board.so start_visiond bad.toml
check "a camera that only has damaged frames is waiting" wait_for 60 camera_is .phase waiting
check "it is opened again and again" wait_for 60 opened 4
check "its reason names them and where to look" eval 'camera .reason | grep "marks every frame as damaged" | grep dmesg'
check "SIGTERM ends it" stop_visiond
unset BOARD_ALL_BAD
check "the log has one warning" equal "$(grep -c 'WARN.*marks every frame as damaged' visiond.log)" 1
check "none was inferred" equal "$(messages camera)" 0
check "the camera's power is off" equal "$(power)" 0

# --- a capture channel that cannot be opened
reset_board
stop_channels
check_not "a camera whose channel is missing does not start" capture --config bad.toml --cycles 1
check "the error names the channel" grep -q '/dev/capture-vi-channel0.*missing' <(capture --config bad.toml --cycles 1 2>&1)
check "its power stays off" equal "$(power)" 0
check "its capture channels are there again" start_channels 2
chgrp root /dev/capture-vi-channel?
mv visiond.log bad.log
chown nobody $data
rm -f $data/*
reset_board
install -m 666 /dev/null $BOARD_LOG
install -m 666 /dev/null $BOARD_STATE
install -m 666 /dev/null $BOARD_POWER
(
  cd $data || exit
  LD_PRELOAD=/opt/board.so exec setpriv --reuid=nobody --regid=nogroup --groups=video visiond run "$OLDPWD/bad.toml"
) >visiond.out 2>visiond.log &
visiond_pid=$!
vm_started+=("$visiond_pid")
check "a camera whose channel is refused is waiting" wait_for 60 camera_is .phase waiting
check "its reason has the line that a unit needs" eval 'camera .reason | grep -F "DeviceAllow=char-capture-vi-channel rw"'
# A name that begins like a camera's wakes visiond at once.
perl -e 'while (1) { open my $file, ">", "/dev/video-retry"; unlink "/dev/video-retry"; select undef, undef, undef, 0.01 }' &
waking=$!
vm_started+=($waking)
retry_thousand() {
  local began=$(ms) errors=0
  while [ "$errors" -lt 1000 ]; do
    [ $(($(ms) - began)) -lt 150000 ] || { echo "$errors retries in 150 s"; return 1; }
    sleep 2
    errors=$(camera .errors)
  done
  echo "$errors retries in $(($(ms) - began)) ms" >>figures
}
check "a thousand retries" retry_thousand
kill $waking
rm -f /dev/video-retry
check "leave its power off" equal "$(power)" 0
check "the log has one warning" equal "$(grep -c 'WARN.*capture-vi-channel0' visiond.log)" 1
chgrp video /dev/capture-vi-channel?
check "with the right to it, detections flow" flowing camera 3
check "SIGTERM ends it" stop_visiond
check "the camera's power is off" equal "$(power)" 0
