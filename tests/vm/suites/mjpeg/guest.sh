. /opt/lib.sh
modprobe videodev
check "v4l2loopback loads" insmod /opt/v4l2loopback.ko video_nr=9 card_label=jpegs
wait_for 5 test -e /dev/video9
v4l2-ctl -d /dev/video9 -c keep_format=1
v4l2-ctl -d /dev/video9 --set-fmt-video-out=width=320,height=240,pixelformat=MJPG >/dev/null

# The camera: one write is one frame.
exec 7>/dev/video9
send() { cat "/opt/pictures/$1.jpg" >&7; }
stream() { while :; do send good; sleep 0.1; done; }
stream &
streamer=$!
vm_started+=($streamer)
check "the driver says MJPG" eval 'v4l2-ctl -d /dev/video9 --get-fmt-video | grep -q MJPG'
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
[[sink]]
type = "file"
path = "$PWD/messages.jsonl"
TOML
check "a picture is taken" visiond capture --config visiond.toml -n 1 -o .
mv loop-*.png picture.png
sed 's/^format.*/&\nio = "userptr"/' visiond.toml >userptr.toml
check_not "USERPTR cannot be forced" visiond capture --config userptr.toml -n 1 -o .
check "the message says what to do" grep -q 'does not stream by `io = "userptr"`.*leave `io` out' /run/check

start_visiond visiond.toml
check "frames flow" flowing loop
kill $streamer
wait_for 5 eval "! kill -0 $streamer"
sleep 1
check "it reads the driver's memory, as USERPTR is refused" grep -q "USERPTR into .*refused\|USERPTR.*(.*EINVAL\|USERPTR into host memory (" visiond.log
before=$(messages loop)
for round in 1 2 3 4; do
  for kind in cut broken headless larger endless good; do send $kind; sleep 0.4; done
done
check "what is whole comes through: 8 more messages" wait_for 3 eval "[ \$(messages loop) -ge $((before + 8)) ]"
sleep 1
check "and nothing of what is damaged" equal "$(messages loop)" $((before + 8))
stream &
streamer=$!
vm_started+=($streamer)
check "it goes on after that" flowing loop
check "SIGTERM ends it" stop_visiond
check "16 damaged frames were counted" equal "$(summary '.cameras[0].dropped.corrupt')" 16
check "what was published is what came less that" equal "$(summary '.cameras[0] | .captured - .published - .dropped.overload')" "$(summary '.cameras[0].dropped.corrupt')"
check "one line told of damage, not sixteen" between "$(grep -c -i 'damaged\|no JPEG' visiond.log)" 1 8
