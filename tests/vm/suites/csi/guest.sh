. /opt/lib.sh
check "a camera" load_vivid n_devs=1 node_types=0x1 input_types=0x00 num_inputs=1 multiplanar=1
camera=$(node vivid-000-vid-cap)
export BOARD_LOG=/run/board BOARD_STATE=/run/stored BOARD_FORMAT=RG10
board() { LD_PRELOAD=/opt/board.so "$@"; }
logged() { grep -qx "$1" $BOARD_LOG; }
last() { grep "^$1 " $BOARD_LOG | tail -n1; }

# --- probe
check "probe queries the sensor" board visiond probe --camera "$camera"
board visiond probe --camera "$camera" >probe.txt
board visiond probe --json >probe.json
check "probe names driver and card" grep -q 'vi-output, imx219 9-0010 (driver tegra-video, platform:tegra-capture-vi:2, single-planar)' probe.txt
check "its samples fill their words, and are read so" grep -q 'samples of 10 bits: in the high bits of 16, as visiond reads them' probe.txt
check "the rate is the control's" grep -q 'would use 640x360 rggb10 at 15 fps' probe.txt

# --- from probe's configuration to detections; vivid's stamps of a frame's end are ahead of the frame
v4l2-ctl -d "$camera" -c test_pattern=1,timestamp_source=1
{
  printf '[[model]]\nname = "bars"\npath = "/opt/tiny.onnx"\ncard = "/opt/tiny.toml"\n\n'
  jq -r .chosen.camera probe.json | sed "s,^device = .*,device = \"$camera\"," | grep -v '^\(width\|height\|fps\) ='
  printf 'width = 320\nheight = 180\nfps = 10\n\n[camera.source.controls]\nsensor_mode = 1\ngain = 100\nexposure = 90000\n'
  printf '\n[[sink]]\ntype = "file"\npath = "%s/messages.jsonl"\n' "$PWD"
} >visiond.toml
check "the configuration is valid" board visiond check visiond.toml
rm -f $BOARD_LOG
visiond_before_stop() {
  LD_PRELOAD=/opt/board.so start_visiond visiond.toml
  flowing camera 20
}
check "a sensor that reports no power gives detections" visiond_before_stop
check "SIGTERM ends it" stop_visiond
check "each bar was found by its colour" equal "$(tail -n1 messages.jsonl | jq -r '[.detections | sort_by(.box.x)[].label] | join(" ")')" \
  "white yellow cyan green magenta red blue black"
check "the mode was chosen before the format" equal "$(last mode)" "mode 1"
check "the sensor has its gain" equal "$(last 'sensor Gain')" "sensor Gain 100"
check "and an exposure that is longer than a frame of its highest rate" equal "$(last 'sensor Exposure')" "sensor Exposure 90000"
check "the rate was set by its control" equal "$(last 'sensor Frame Rate')" "sensor Frame Rate 10000000"
check "the log has no error and no warning" eval '! grep -E "ERROR|WARN" visiond.log'

# --- times: of each message against the frame's true time
jq -r '"\(.sequence) \(.monotonic_ns)"' messages.jsonl | sort >found
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
board visiond capture --config visiond.toml -n 1 -o again >again.log 2>&1
check "a second process sets the sensor again" equal "$(last 'sensor Gain')" "sensor Gain 100"
sed -i 's/^sensor_mode = 1/&\noverride_enable = 0/' visiond.toml
rm -f $BOARD_LOG
board visiond capture --config visiond.toml -n 1 -o again >>again.log 2>&1
check "and does so while it streams, where the override is switched off" \
  equal "$(grep 'sensor Gain' $BOARD_LOG | tr '\n' ' ')" "sensor Gain 16 sensor Gain 99 sensor Gain 100 "
sed -i '/^override_enable/d; s/^fps = 10/fps = 60/' visiond.toml
check "a rate that the sensor has not becomes the nearest" \
  grep -q 'the driver has no 60 frames per second at this size, using 15' <(board visiond capture --config visiond.toml -n 1 -o again 2>&1)
sed -i 's/^sensor_mode = 1/&\npreferred_stride = 704/; s/^fps = 60/fps = 10/' visiond.toml
check "rows as far apart as wanted" board visiond capture --config visiond.toml -n 1 -o stride

# --- colours, to the value: squares whose samples a wrong place would darken 64 times
v4l2-ctl -d "$camera" -c test_pattern=4
for format in RG10:rggb10 BA10:grbg10 GB10:gbrg10 BG10:bggr10 RG12:rggb12 BA12:grbg12 GB12:gbrg12 BG12:bggr12; do
  for way in userptr mmap copy; do
    case=${format%:*}-$way
    sed "s/^type = \"v4l2\"/&\nformat = \"${format#*:}\"\nio = \"$way\"/; /^preferred_stride/d" visiond.toml >"/run/$case.toml"
    shot() {
      BOARD_FORMAT=${format%:*} board visiond capture --config "/run/$case.toml" --json -n 1 -o "/run/$case" >"$case.json" 2>"$case.err" || { cat "$case.err"; return 1; }
      mv "/run/$case"/*.png "$case.png" && echo "$case" >>cases
    }
    check "$case" shot
  done
done

# --- the whole sensor by selftest, against the report's documented form
status=0
board visiond selftest --camera "$camera" --only board,cameras --json >selftest.json || status=$?
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
check "I/O methods" grep -q "^pass mmap: yes, userptr: yes, expbuf: yes" <(row I/O)

# --- faults: a late first frame, broken ones, a reset
v4l2-ctl -d "$camera" -c test_pattern=1
rm -f $BOARD_LOG messages.jsonl
export BOARD_FAULTS=1
LD_PRELOAD=/opt/board.so start_visiond visiond.toml
check "the sensor is reset" wait_for 120 logged reset
check "and its frames arrive again" flowing camera 30
check "SIGTERM ends it" stop_visiond
check "broken frames are counted as such, and never inferred" \
  equal "$(jq -s '[.[].detections | length] | min' messages.jsonl) $(summary '.cameras[0].dropped.corrupt > 1')" "8 true"
check "the log says what broke off" grep -q "failed: the driver reports a device error" visiond.log
