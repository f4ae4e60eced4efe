. /opt/lib.sh
check "three cameras: single-planar, multi-planar, HDMI" \
  load_vivid n_devs=3 node_types=0x1,0x1,0x1 input_types=0x00,0x00,0xff num_inputs=1,1,1 multiplanar=1,2,1
single=$(node vivid-000-vid-cap) multi=$(node vivid-001-vid-cap) hdmi=$(node vivid-002-vid-cap)
# Eight rows of eight squares, each row one square farther on.
for camera in "$single" "$multi" "$hdmi"; do v4l2-ctl -d "$camera" -c test_pattern=4; done

# Fourcc and visiond's name for it.
formats="NV12:nv12 YUYV:yuyv UYVY:uyvy YVYU:yvyu VYUY:vyuy NV21:nv21 NV16:nv16 NV61:nv61 YU12:i420 YV12:i420 RGB3:rgb BGR3:bgr
  AB24:rgba XB24:rgba AR24:bgra XR24:bgra RGGB:rggb8 GRBG:grbg8 GBRG:gbrg8 BA81:bggr8 RG10:rggb10 BA10:grbg10 GB10:gbrg10 BG10:bggr10
  RG12:rggb12 BA12:grbg12 GB12:gbrg12 BG12:bggr12 RG16:rggb16 GR16:grbg16 GB16:gbrg16 BYR2:bggr16 GREY:grey
  Y10:grey10 Y12:grey12 Y16:grey16"
planar="NM12:nv12 NM21:nv21 NM16:nv16 NM61:nv61 YM12:i420 YM21:i420"

# A picture by `visiond capture`, as CASE.png; how it was opened goes to CASE.json.
shot() { # CASE CAMERA FOURCC FORMAT WIDTH HEIGHT IO
  local case=$1 io= range= change
  rm -f /run/changed
  [ "$7" = auto ] || io="io = \"$7\""
  # vivid paints them so, as videodev2.h has it. Cameras do not.
  case $4 in grey1?) range='color_range = "limited"' ;; esac
  cat >"/run/$case.toml" <<TOML
[[model]]
name = "bars"
path = "/opt/tiny.onnx"
[[camera]]
name = "camera"
[camera.source]
type = "v4l2"
device = "$2"
format = "$4"
width = $5
height = $6
$io
$range
TOML
  CHANGED=/run/changed LD_PRELOAD=/opt/driver.so ONLY_FORMAT=$3 timeout 120 visiond capture --config "/run/$case.toml" --json -n 1 -o "/run/$case" >"$case.json" 2>"$case.err" ||
    { cat "$case.err"; return 1; }
  [ -s "$case.err" ] || rm "$case.err"
  for change in formats ${PITCH_EXTRA:+pitch} ${IDLE_STATUS:+status}; do
    grep -qx $change /run/changed || { echo "the driver's $change were not changed"; return 1; }
  done
  mv "/run/$case"/*.png "$case.png" || return 1
  echo "$case $3 $4 $5 $6 $7" >>cases
}

each() { # API CAMERA FORMATS WAYS: all of them
  local pair way
  for pair in $3; do
    for way in $4; do
      check "$1 ${pair%:*} $way" shot "$1-${pair%:*}-$way" "$2" "${pair%:*}" "${pair#*:}" 320 180 "$way"
    done
  done
}
# At 5 frames a second, the driver's own, the wait would be most of the test.
for camera in "$single" "$multi"; do v4l2-ctl -d "$camera" --set-fmt-video=width=320,height=180 --set-parm 50 >/dev/null; done
# Every format by both APIs and both ways, though not by all four pairs: what a format is and how its buffer comes are separate.
each single "$single" "$formats" userptr
each multi "$multi" "$formats" mmap
each multi "$multi" "$planar" "userptr mmap"
each single "$single" "NV12:nv12 YUYV:yuyv YU12:i420 RG10:rggb10" "mmap copy"
each multi "$multi" "NV12:nv12 YUYV:yuyv YU12:i420 RG10:rggb10" userptr
each multi "$multi" "NV12:nv12 NM12:nv12 YM21:i420" copy

export PITCH_EXTRA=52
for pair in YUYV:yuyv NV12:nv12 NV16:nv16 YU12:i420 YV12:i420 RGB3:rgb RG10:rggb10 GREY:grey Y12:grey12; do
  check "single ${pair%:*}, rows 52 bytes farther apart" shot "pitch-single-${pair%:*}" "$single" "${pair%:*}" "${pair#*:}" 320 180 auto
done
for pair in YUYV:yuyv NV12:nv12 NM12:nv12 NM16:nv16 YM12:i420; do
  for way in userptr mmap; do
    check "multi ${pair%:*} $way, rows 52 bytes farther apart" shot "pitch-multi-${pair%:*}-$way" "$multi" "${pair%:*}" "${pair#*:}" 320 180 $way
  done
done
unset PITCH_EXTRA

# With cropping and composing a part of an earlier size's picture would stay. vivid rounds half a row of YU12 down to even, so
# that only multiples of four come whole.
v4l2-ctl -d "$hdmi" -c enable_capture_cropping=0,enable_capture_composing=0,enable_capture_scaler=1
for size in 260x150 324x182; do
  for pair in YUYV:yuyv NV12:nv12 NV16:nv16 YU12:i420 RGB3:rgb RGGB:rggb8; do
    check "HDMI ${pair%:*} $size" shot "hdmi-${pair%:*}-$size" "$hdmi" "${pair%:*}" "${pair#*:}" "${size%x*}" "${size#*x}" auto
  done
done

export IDLE_STATUS=1
check "a sensor whose driver says that it has no power until it streams" shot idle-single "$single" YUYV yuyv 320 180 auto
check "a bridge whose driver says so" shot idle-hdmi "$hdmi" YUYV yuyv 324 182 auto
unset IDLE_STATUS

# colorspace (0: SMPTE 170M, 1: Rec. 709, 2: sRGB, 4: BT.2020), encoding (0: by colorspace, 1: 601, 2: 709), quantization (1:
# full, 2: limited)
for colours in 0-0-1 0-0-2 1-0-1 1-0-2 2-2-1 2-1-2 4-0-1 4-0-2; do
  IFS=- read -r space encoding quantization <<<"$colours"
  v4l2-ctl -d "$single" -c "colorspace=$space,y_cbcr_encoding=$encoding,quantization=$quantization"
  for pair in YUYV:yuyv NV12:nv12; do
    check "${pair%:*}, colours $colours" shot "colours-${pair%:*}-$colours" "$single" "${pair%:*}" "${pair#*:}" 320 180 auto
  done
done
v4l2-ctl -d "$single" -c colorspace=2,y_cbcr_encoding=0,quantization=0
