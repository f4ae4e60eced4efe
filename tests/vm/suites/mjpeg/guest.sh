. /opt/lib.sh
modprobe videodev
check "v4l2loopback loads" insmod /opt/v4l2loopback.ko max_buffers=8 video_nr=9 card_label=jpegs
wait_for 60 test -e /dev/video9
v4l2-ctl -d /dev/video9 -c keep_format=1
v4l2-ctl -d /dev/video9 --set-fmt-video-out=width=320,height=240,pixelformat=MJPG >/dev/null

# The camera: one write is one frame.
exec 7>/dev/video9
send() { cat "/opt/pictures/$1.jpg" >&7; }
stream() { while :; do send good; sleep 0.1; done; }
stream &
streamer=$!
vm_started+=($streamer)
check "the driver says MJPG" wait_for 60 eval 'v4l2-ctl -d /dev/video9 --get-fmt-video | grep -q MJPG'
check "the driver refuses USERPTR" eval 'v4l2-ctl -d /dev/video9 --stream-user --stream-count=1 2>&1 | grep -q -i "reqbufs.*failed\|unsupported\|invalid"'

cat >visiond.toml <<TOML
[status]
log_interval = "1 s"
[[model]]
name = "bars"
path = "/opt/tiny.onnx"
[[camera]]
name = "loop"
[camera.source]
type = "v4l2"
device = "/dev/video9"
format = "mjpeg"
# This camera waits for the test.
timeout = "30 s"
[[sink]]
type = "file"
path = "$PWD/messages.jsonl"
TOML
check "a picture is taken" visiond capture --config visiond.toml -n 1 -o .
mv loop-*.png picture.png
sed 's/^format.*/&\nio = "userptr"/' visiond.toml >userptr.toml
check_not "USERPTR cannot be forced" eval 'visiond capture --config userptr.toml -n 1 -o . >userptr.log 2>&1'
check "the message says what to do" grep -q 'cannot stream with `io = "userptr"`.*remove `io`' userptr.log

start_visiond visiond.toml
check "frames flow" flowing loop
kill $streamer
wait $streamer
# Its last frames are still on their way.
before=-1
while [ "$(messages loop)" != $before ]; do before=$(messages loop); sleep 3; done
check "it reads the driver's memory, as USERPTR is refused" grep -q "MMAP.*refused: USERPTR" visiond.log
damaged=0 whole=$before
for kind in cut broken headless good endless cut broken headless good endless cut broken headless good endless; do
  send $kind
  case $kind in
    good | endless) whole=$((whole + 1)) && wait_for 60 eval '[ "$(messages loop)" -ge $whole ]' ;;
    *) damaged=$((damaged + 1)) && wait_for 60 grep -q "corrupt $damaged\b" visiond.log ;;
  esac
done
check "what is whole comes through, and nothing else" equal "$(messages loop)" $((before + 6))
stream &
streamer=$!
vm_started+=($streamer)
check "it goes on after that" flowing loop
check "SIGTERM ends it" stop_visiond
check "the damaged ones were counted" equal "$(summary '.cameras[0].dropped.corrupt')" 9
check "none else was" equal "$(summary '.cameras[0] | .captured - .published - .dropped.overload')" 0
check "the status in the log has them" grep -q "corrupt 9" visiond.log
check "the camera was opened once" equal "$(summary '.cameras[0].restarts')" 0

# --- a camera of which no picture can be decoded
kill $streamer
wait $streamer
mv visiond.log good.log
sed 's/^timeout = .*/timeout = "2 s"/' visiond.toml >never.toml
while :; do send headless; sleep 0.1; done &
streamer=$!
vm_started+=($streamer)
start_visiond never.toml
never_decodes() { grep -q "WARN.*no usable frame from /dev/video9 for 2 s: no JPEG can be decoded" visiond.log; }
check "a camera whose JPEG never decodes is said to be one" wait_for 60 never_decodes
check "and is waiting while it is opened again" wait_for 60 eval 'grep -q "loop waiting" visiond.log'
sleep 5
check "SIGTERM ends it" stop_visiond
check "it was opened again" equal "$(summary '.cameras[0].restarts > 0')" true
check "the log has one warning" equal "$(grep -c 'WARN.*no JPEG can be decoded' visiond.log)" 1
