. /opt/lib.sh
# A webcam, a webcam with the multi-planar API, an HDMI input among others.
check "the virtual cameras load" \
  load_vivid n_devs=3 node_types=0x1,0x1,0x1 input_types=0x00,0x00,0xff num_inputs=1,1,4 multiplanar=1,2,1
web=$(node vivid-000-vid-cap) multi=$(node vivid-001-vid-cap) hdmi=$(node vivid-002-vid-cap)
# All of vivid's cameras have one bus address, so only one of them has its link.
check "udev has made the link by their address" wait_for 60 test -e /dev/v4l/by-path/platform-vivid.0-video-index0

# --- probe
visiond probe --json >probe.json
visiond probe >probe.txt
visiond probe --camera "$web" >probe-web.txt
of() { jq -r --arg node "$1" ".cameras[] | select(.device == \$node) | $2" probe.json; }
v4l2_names() { v4l2-ctl -d "$1" --list-ctrls | sed -n 's/^ *\([a-z0-9_]*\) 0x.*/\1/p' | sort; }
v4l2_formats() { v4l2-ctl -d "$1" --list-formats | sed -n "s/^.*\\[[0-9]*\\]: '\\([^']*\\)'.*/\\1/p" | tr -d ' ' | sort; }
v4l2_sizes() { v4l2-ctl -d "$1" --list-framesizes="$2" | sed -n 's/.*Discrete \([0-9x]*\)/\1/p' | sort; }
for camera in "$web" "$multi" "$hdmi"; do
  check "$camera: probe names every control that v4l2-ctl does" equal "$(of "$camera" '.controls[].name' | sort)" "$(v4l2_names "$camera")"
  check "$camera: probe lists every format that v4l2-ctl does" equal "$(of "$camera" '.formats[].fourcc' | sort)" "$(v4l2_formats "$camera")"
done
check "sizes of a webcam" equal "$(of "$web" '.formats[] | select(.fourcc == "YUYV").sizes[] | "\(.width)x\(.height)"' | sort)" "$(v4l2_sizes "$web" YUYV)"
check "rates of a size" equal "$(of "$web" '.formats[] | select(.fourcc == "YUYV").sizes[] | select(.width == 1280 and .height == 720).fps | map(. + 0) | join(" ")')" \
  "$(v4l2-ctl -d "$web" --list-frameintervals width=1280,height=720,pixelformat=YUYV | sed -n 's/.*(\([0-9.]*\) fps).*/\1/p' | sed 's/\.\?0*$//' | sort -rn | tr '\n' ' ' | sed 's/ $//')"
check "an HDMI input has a range of sizes" equal "$(of "$hdmi" '[.formats[].sizes[].range] | all(.min_width > 0)')" true
check "both APIs" equal "$(of "$web" .api) $(of "$multi" .api)" "single-planar multi-planar"
check "the card's name" equal "$(of "$web" .names.card)" vivid-000-vid-cap
check "the name by address" equal "$(jq -r '[.cameras[].names.by_path[]] | join(" ")' probe.json)" /dev/v4l/by-path/platform-vivid.0-video-index0
check "every kind of control" equal "$(of "$web" '[.controls[].type] | unique | join(" ")')" \
  "bitmask boolean button compound integer integer64 integer_menu menu string"
check "a control with range, default and value" equal "$(of "$web" '.controls[] | select(.name == "brightness") | "\(.minimum) \(.maximum) \(.default) \(.value)"')" "0 255 128 128"
check "the I/O methods, and the best" equal "$(of "$web" '"\(.io.userptr) \(.io.mmap) \(.chosen.io)"')" "true true userptr"
check "the inputs of a card, the one that is set, its signal" equal \
  "$(of "$hdmi" '"\(.inputs | length) \([.inputs[] | select(.is_set).signal] | join(" "))"')" "4 1280x720 at 60 fps"
check "the mode that run would use, in words" grep -q '^ *would use .* at .* fps' probe-web.txt
check "a camera by its card's name" visiond probe --camera vivid-001-vid-cap
check_not "a missing camera" visiond probe --camera 1234:5678
{ printf '[[model]]\nname = "bars"\npath = "/opt/tiny.onnx"\ncard = "/opt/tiny.toml"\n\n'; jq -r .chosen.camera probe.json; } >snippet.toml
check "the configuration that probe proposes is valid" visiond check snippet.toml
check "and its camera delivers pictures" visiond capture --config snippet.toml -o snippet

# --- controls
value() { v4l2-ctl -d "$1" -C "$2" | sed 's/^[a-z0-9_]*: //'; }
write_config controls.toml door="$web"
sed -i 's/^type = "v4l2"/&\nwidth = 320\nheight = 180\nfps = 25/' controls.toml
cat >>controls.toml <<'TOML'

[camera.source.controls]
brightness = 7
boolean = false
button = true
bitmask = 0x80002000
integer_32_bits = -5
integer_64_bits = 4294967297
integer_menu = "42"
menu = "Menu Item 4"
string = "ab"
gain = 33
gain_automatic = false
TOML
# write_config writes the sink after the camera: the table of controls must be before it.
awk '/^\[\[sink\]\]/ { sink = 1 } /^\[camera.source.controls\]/ { sink = 0 } { if (sink) held = held $0 "\n"; else print } END { printf "\n%s", held }' \
  controls.toml >moved.toml && mv moved.toml controls.toml
all_set() {
  equal "$(value "$web" brightness) $(value "$web" boolean) $(value "$web" bitmask) $(value "$web" integer_32_bits)" "7 0 $((0x80002000 - 0x100000000)) -5" &&
    equal "$(value "$web" integer_64_bits) $(value "$web" integer_menu | cut -d" " -f1) $(value "$web" menu | cut -d" " -f1)" "4294967297 8 4" &&
    equal "$(value "$web" string) $(value "$web" gain) $(value "$web" gain_automatic)" "'ab' 33 0"
}
check "a configuration with controls is valid" visiond check controls.toml
check_not "and has no warning" grep -q warning <(visiond check controls.toml)
check "they are set when the camera is opened" visiond capture --config controls.toml -o out -v
check "all of them" all_set
v4l2-ctl -d "$web" -c brightness=100,gain_automatic=1,menu=3
check "and again when it is opened again" eval "visiond capture --config controls.toml -o out && all_set"
start_visiond controls.toml
check "the daemon runs" flowing door
echo vivid.0 >/sys/bus/platform/drivers/vivid/unbind
sleep 0.5
echo vivid.0 >/sys/bus/platform/drivers/vivid/bind
udevadm settle
check "its camera comes back" flowing door
web=$(node vivid-000-vid-cap) multi=$(node vivid-001-vid-cap) hdmi=$(node vivid-002-vid-cap)
check "with its controls" all_set
check "it ends" stop_visiond
quiet_pictures

# --- controls that are wrong
wrong() { # CONTROL=VALUE TEXT...
  # With -v, because that a control has no effect is a warning, which --json leaves out.
  visiond capture -v -c "$web" --width 320 --height 180 --fps 25 --control "$1" --json -o out >wrong.out 2>wrong.err || return 1
  shift
  for text in "$@"; do grep -qF -- "$text" wrong.err || { cat wrong.err; return 1; }; done
  grep -q '"event":"end"' wrong.out
}
check "out of range: it streams without it" wrong brightness=300 'does not accept 300: it accepts 0 to 255: the camera streams without it'
check "unknown: the error suggests the likely one" wrong brightnes=3 'did you mean `brightness`?'
check "no such item: the error lists the items" wrong 'menu=Item 9' 'Menu Item 4'
check "bits that do not exist" wrong bitmask=0x1 'bits of'
check "text that is too long" wrong 'string=abcdefghijklmnopqrstuvwxyz' 'it accepts text of'
check "a read-only control" wrong read_only_integer_32_bits=3 'is read-only'
check "a control of an automatic mode" eval "v4l2-ctl -d $web -c gain_automatic=1 && wrong gain=3 'has no effect: an automatic mode controls it'"
sed 's/^brightness = 7/brightness = 300/; s/^gain = 33/zoooom = 1/' controls.toml >bad.toml
check "check reports wrong ones" eval "visiond check bad.toml | grep -qF 'does not accept 300' && visiond check bad.toml | grep -qF 'no control \`zoooom\`'"

# --- capture
whole() { # FOLDER COUNT: that many whole PNG files
  local files=("$1"/*.png) file
  equal ${#files[@]} "$2" || return 1
  for file in "${files[@]}"; do
    [ "$(head -c 8 "$file" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] && tail -c 12 "$file" | grep -q IEND || return 1
  done
}
check "ten pictures" eval "visiond capture -c $web --format yuyv --width 320 --height 180 --fps 25 -n 10 -o ten && whole ten 10"
visiond capture -c "$web" --width 320 --height 180 --fps 25 -n 5 --skip 3 --json -o json >capture.json
check "a line a frame, with time and file" equal "$(jq -rs '[.[] | select(.event == "frame") | select(.monotonic_ns > 0 and .width == 320) | .file] | length' capture.json)" 5
check "frames that are skipped are not saved" eval "[ \$(jq -rs '[.[] | select(.event == \"frame\").sequence] | min' capture.json) -ge 3 ] && whole json 5"
for io in userptr mmap copy; do
  visiond capture -c "$web" --width 320 --height 180 --fps 25 --io $io --json -o "$io" >io.json
  check "pictures by $io" eval "equal \"\$(jq -r 'select(.event == \"opened\").io' io.json)\" $io && whole $io 1"
done
check "a picture by the multi-planar API" eval "visiond capture -c $multi --width 320 --height 180 --fps 25 -o multi && whole multi 1"
check "a picture of an HDMI input" eval "visiond capture -c $hdmi -o hdmi && whole hdmi 1"
status() { local status=0; "$@" >/dev/null 2>status.err || status=$?; echo $status; }
v4l2-ctl -d "$hdmi" -c dv_timings_signal_mode=1
check "an input without a signal: 5" equal "$(status visiond capture -c "$hdmi")" 5
check "and what to check" grep -qF "no signal at its input: check the cable" status.err
v4l2-ctl -d "$hdmi" -c dv_timings_signal_mode=0
check "a missing camera: 5" equal "$(status visiond capture -c /dev/video99)" 5
check "an impossible folder: 6" equal "$(status visiond capture -c "$web" -o /proc/pictures)" 6
check "an unknown format: 2" equal "$(status visiond capture -c "$web" --format mpeg)" 2

# --- nothing grows
visiond capture -c "$web" --width 320 --height 180 --fps 25 --cycles 40 --json >cycles.json
footprint() { jq -rs "[.[] | select(.event == \"footprint\" and .cycle > 0)] | .[-1].$1 - .[0].$1" cycles.json; }
check "descriptors after 40 cycles" equal "$(footprint descriptors)" 0
check "threads after 40 cycles" equal "$(footprint threads)" 0
check "mappings after 40 cycles" between "$(footprint mappings)" -20 4
check "memory after 40 cycles" between "$(footprint resident_bytes)" -8000000 1000000
