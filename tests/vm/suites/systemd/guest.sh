. /opt/lib.sh

# --- the work of the package's scripts -----------------------------------------------------------------------------------
state=/var/lib/visiond
version=$(systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
echo "u reader - - /home/reader
m reader visiond
u stranger -" >/usr/lib/sysusers.d/readers.conf
mkdir -p /home/reader
touch /tmp/outside
chmod 666 /dev/hwrng
for unit in visiond.service visiond@.service; do
  if [ "$version" -ge 249 ]; then install -D -m 644 -t /usr/lib/systemd/system/$unit.d /opt/landlock.conf; fi
  if [ "$version" -ge 253 ]; then install -D -m 644 -t /usr/lib/systemd/system/$unit.d /opt/notify-reload.conf; fi
done
check "the user is made" systemd-sysusers
check "the folder for configurations is made" systemd-tmpfiles --create visiond.conf
udevadm control --reload
systemctl daemon-reload

# --- helpers ---------------------------------------------------------------------------------------------------------
messages() { if [ -f $state/messages.jsonl ]; then grep -c "\"camera\":\"$1\"" $state/messages.jsonl || true; else echo 0; fi; }
property() { systemctl show -p "$1" --value "${2:-visiond}"; }
# Lines of the journal that a filter of jq picks, since the last `mark`.
mark() { since=$(date +%s.%N); sleep 0.01; }
# A machine that has just started has little in its journal, so all of it is read.
journal() { journalctl -o json --no-pager -u "${2:-visiond}" --since "@${since%.*}" | jq -c "select($1)"; }
said() { journal "(.MESSAGE // \"\" | tostring | contains(\"$1\"))" "${2:-visiond}" | grep -q .; }
# as USER COMMAND...
as() { local user=$1; shift; setpriv --reuid="$user" --regid="$user" --init-groups "$@"; }
# Another process than $1 is running and ready.
replaced() { [ "$(property MainPID)" != "$1" ] && [ "$(property MainPID)" != 0 ] && [ "$(property ActiveState)" = active ]; }
override() { # UNIT LINE...
  local folder=/etc/systemd/system/$1.d
  mkdir -p "$folder"
  shift
  printf '[Service]\n' >"$folder/test.conf"
  printf '%s\n' "$@" >>"$folder/test.conf"
  systemctl daemon-reload
}
config() { # FILE CAMERA: its first part
  cat >"$1" <<END
[status]
log_interval = "1 s"
[[model]]
name = "bars"
path = "/opt/tiny.onnx"
card = "/opt/tiny.toml"
[[camera]]
name = "$2"
END
}
mark

# --- the units, before anything runs ------------------------------------------------------------------------------------
config /etc/visiond/visiond.toml door
cat >>/etc/visiond/visiond.toml <<END
[camera.source]
type = "v4l2"
device = "/dev/video0"
width = 320
height = 180
fps = 25
[[sink]]
type = "file"
path = "$state/messages.jsonl"
[[sink]]
type = "unix"
path = "/run/visiond/detections.sock"
END
verify() { systemd-analyze verify --man=no visiond.service visiond@gate.service visiond.socket visiond-bundles.service >verify.txt 2>&1 && [ ! -s verify.txt ] || { cat verify.txt; return 1; }; }
check "systemd-analyze verify has no warning ($version)" verify
score() {
  systemd-analyze security --no-pager "$1" >"security-$1.txt" 2>&1
  local score
  score=$(sed -n 's/.*Overall exposure level for [^:]*: \([0-9.]*\).*/\1/p' "security-$1.txt")
  echo "exposure of $1 under systemd $version: $score" >>figures
  [ -n "$score" ] && [ "${score/./}" -le "${2:-15}" ] || { echo "$score"; grep '✗' "security-$1.txt"; return 1; }
}
check "its exposure is 1.5 or less" score visiond.service
# It is root, whose store it is.
check "the exposure of visiond-bundles is 1.9 or less" score visiond-bundles.service 19
check "an instance's exposure is 1.5 or less" score visiond@gate.service

# --- a camera that appears after visiond, its driver too ------------------------------------------------------------------
check "it starts without a camera" systemctl start visiond
check "systemctl status has a line that says so" wait_for 60 eval 'property StatusText | grep -q "door waiting"'
check "no driver of cameras is loaded" eval '! grep -q video4linux /proc/devices'
check "the virtual cameras load" load_vivid n_devs=1 node_types=0x1 input_types=0x00 num_inputs=1
check "the sandbox lets it open the camera" flowing door
check "the camera is a unit of systemd's" systemctl is-active dev-video0.device
check "memory is limited" eval '[ "$(property MemoryMax)" != infinity ]'
check "it is killed first when the machine runs out of memory" equal "$(cat "/proc/$(property MainPID)/oom_score_adj")" 500
for service in nvpower nvpmodel nv-load-display-modules nv-load-gpu-libs; do
  check "it starts after a Jetson's $service, which need not exist" eval "property After | grep -q $service.service"
done
check "it runs as its user" equal "$(ps -o user= -p "$(property MainPID)")" visiond

# --- who may read ---------------------------------------------------------------------------------------------------------
line_of() { as "$1" timeout 120 perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => "/run/visiond/detections.sock") or die "$!\n"; print scalar <$s>'; }
check "members of its group read its socket" eval 'line_of reader | jq -e .schema'
check "others may not" eval 'line_of stranger 2>&1 | grep -q "Permission denied"'
check "its group reads its configuration and its files" \
  as reader test -r /etc/visiond/visiond.toml -a -r $state/messages.jsonl
check_not "others do not" as stranger test -r /etc/visiond/visiond.toml -o -r $state/messages.jsonl

# --- the journal ----------------------------------------------------------------------------------------------------------
journalctl --sync 2>/dev/null || sleep 1
check "a line about a camera has its fields" eval 'journal ".CAMERA == \"door\" and .MESSAGE_ID == \"81cc4fe4614943dba0b8531c4fc81c22\" and
  .PRIORITY == \"6\" and .SYSLOG_IDENTIFIER == \"visiond\" and (.CODE_FILE | endswith(\"camera.rs\")) and (.CODE_LINE | tonumber) > 0 and
  (.TARGET | startswith(\"visiond_pipeline::\")) and ._TRANSPORT == \"journal\"" | grep -q .'
check "a camera that was away is a warning with its number" \
  eval 'journal ".CAMERA == \"door\" and .MESSAGE_ID == \"c081cd992ee44c2fa53f1afd157b5a6a\" and .PRIORITY == \"4\"" | grep -q .'

# --- SIGTERM ----------------------------------------------------------------------------------------------------------------
flowing door 5
mark
began=$(ms)
check "systemctl stop ends it" systemctl stop visiond
echo "systemctl stop: $(($(ms) - began)) ms" >>figures
# Killed, it would have another result.
check "by itself" equal "$(property Result) $(property ExecMainStatus)" "success 0"
check "every message is whole" eval "jq -e .schema $state/messages.jsonl >/dev/null"
check "its socket is gone" eval '[ ! -e /run/visiond/detections.sock ]'

# --- the live page's socket ---------------------------------------------------------------------------------------------------
page() { timeout 120 perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new("127.0.0.1:8790") or die "$!\n"; print $s "GET $ARGV[0] HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"; print <$s>' "$1"; }
# answered PATH TEXT: the response for PATH contains TEXT; otherwise shows the response and the state of the units.
answered() {
  page "$1" >answer 2>&1
  grep -q "$2" answer || { systemctl status --no-pager visiond.socket visiond; echo "the answer: $(head -c 300 answer)"; return 1; }
}
check "the page's socket is held open" systemctl start visiond.socket
# systemd 247 once left a service, whose stop had just ended, to the second connection.
check "a request starts visiond and is answered" \
  eval 'answered /healthz "^HTTP/1.1 200" || answered /healthz "^HTTP/1.1 200"'
check "the page is served" answered / "<!doctype html>"
pid=$(property MainPID)
check "while it restarts" systemctl --no-block restart visiond
check "no request is refused" answered /healthz "^HTTP/1.1 200"
check "another process answers" wait_for 60 replaced "$pid"

# --- priorities -----------------------------------------------------------------------------------------------------------------
# A thread's policy, see ps(1): TS as all, B batch, IDL idle.
policy_of() { ps -L -o comm=,policy= -p "$(property MainPID)" | awk -v name="$1" '$1 == name { print $2; exit }'; }
wait_for 60 eval '[ "$(property ActiveState)" = active ]'
check "the sandbox leaves the priorities of threads as they are" equal "$(policy_of sink-file)" "TS"
systemctl stop visiond.socket visiond
install -D -m 644 /opt/priorities.conf /etc/systemd/system/visiond.service.d/priorities.conf
systemctl daemon-reload
systemctl start visiond
check "with priorities.conf, sinks give way" equal "$(policy_of sink-file)" "B"
check "cameras do not" equal "$(ps -L -o comm=,policy= -p "$(property MainPID)" | sed -n 's/^cam door *//p')" "TS"
rm /etc/systemd/system/visiond.service.d/priorities.conf
systemctl stop visiond

# --- a sensor of NVIDIA's, whose driver opens its capture channel as visiond ----------------------------------------------------
# The library is in the driver's place (board/board.c). These files are for this user and for visiond's.
driver="LD_PRELOAD=/opt/board.so BOARD_LOG=$state/board.log BOARD_STATE=$state/board.state BOARD_POWER=$state/board.power"
for file in log state power; do install -m 666 /dev/null $state/board.$file; done
power() { local times; times=$(cat $state/board.power); echo "${times:-0}"; }
# sensor_unit LINE...: the unit with the driver, and more lines.
sensor_unit() { override visiond.service "Environment=$driver" "$@"; }
# Its camera is as `probe` proposes it. The lamp needs no driver.
cp /etc/visiond/visiond.toml /etc/visiond/door.toml
config /etc/visiond/visiond.toml lamp
cat >>/etc/visiond/visiond.toml <<END
[camera.source]
type = "pattern"
width = 64
height = 48
fps = 5
[[sink]]
type = "file"
path = "$state/messages.jsonl"
END
check "the driver makes its capture channels" start_channels
env $driver visiond probe --json 2>probe.err | jq -r .chosen.camera >probe.toml
check "probe proposes its camera" grep -q '^name = "camera"' probe.toml
cat probe.toml >>/etc/visiond/visiond.toml
sensor_unit
systemctl start visiond
check "the unit as it is runs with probe's configuration" flowing camera
check "the other camera, too" flowing lamp
systemctl stop visiond
check "the camera's power is off again" equal "$(power)" 0

# The number of a driver that comes later is not in the unit's list.
stop_channels
mark
systemctl start visiond
check "without the driver's channels the camera waits" wait_for 60 said "/dev/capture-vi-channel0"
pid=$(property MainPID)
check "the driver makes its channels" start_channels
check "systemd starts visiond again" wait_for 120 replaced "$pid"
check "its detections flow" flowing camera
check "one restart is enough" equal "$(property NRestarts)" 1
systemctl stop visiond
check "the camera's power is off again" equal "$(power)" 0

mapfile -t devices < <(grep '^DeviceAllow=' /usr/lib/systemd/system/visiond.service | grep -v capture-vi-channel)
sensor_unit DeviceAllow= "${devices[@]}"
mark
systemctl start --no-block visiond
check "without the unit's line, the journal has it" wait_for 60 said "DeviceAllow=char-capture-vi-channel rw"
# A new process would have the driver's number if the unit listed it.
check "it keeps running after one restart" wait_for 60 eval '[ "$(property NRestarts)" = 1 ] && property StatusText | grep -q "camera waiting"'
check "the other camera goes on" flowing lamp
sleep 5
check "the process stays" equal "$(property NRestarts) $(property ActiveState)" "1 active"
check "the camera's power stays off" equal "$(power)" 0
systemctl stop visiond
stop_channels
rm -r /etc/systemd/system/visiond.service.d
systemctl daemon-reload
mv /etc/visiond/door.toml /etc/visiond/visiond.toml

if [ "$version" -lt 252 ]; then
  # The old systemd reads the units differently, which the checks above cover.
  cat figures
  exit
fi

# --- READY only after the first frame ----------------------------------------------------------------------------------------
config /etc/visiond/gate.toml gate
printf 'me:p@ss word\n' >/etc/visiond/gate.login
chmod 600 /etc/visiond/gate.login
cat >>/etc/visiond/gate.toml <<END
[camera.source]
type = "video"
url = "rtsp://camera.example:554/1"
login = "gate"
[ffmpeg]
program = "/opt/bin/ffmpeg"
# Only the unit's sandbox must forbid the actions that these programs try.
confined = false
[[sink]]
type = "file"
path = "$state/gate/messages.jsonl"
[[sink]]
type = "unix"
path = "/run/visiond/gate/detections.sock"
END
override visiond@gate.service LoadCredential=gate:/etc/visiond/gate.login
mark
systemctl start visiond@gate &
starting=$!
check "the camera's stream is requested" wait_for 60 test -e $state/gate/asked
sleep 2
check "a service whose camera has not given a frame is not ready" equal "$(property ActiveState visiond@gate)" activating
touch /run/frames
check "it is ready when it has" wait $starting
first_us=$(($(head -n1 $state/gate/messages.jsonl | jq .monotonic_ns) / 1000))
check "the frame was taken before systemd was notified" \
  between "$first_us" 1 "$(property ActiveEnterTimestampMonotonic visiond@gate)"

# --- credentials and sandbox ---------------------------------------------------------------------------------------------------
check "the login of a credential reaches the camera" grep -q 'rtsp://me:p%40ss%20word@camera.example:554/1' $state/gate/asked
journalctl --sync 2>/dev/null || sleep 1
check "the journal shows the stream" said 'rtsp://***@camera.example:554/1' visiond@gate
check_not "and never the password" said 'p%40ss' visiond@gate
check "a program that it starts may do nothing that the sandbox forbids" equal "$(cat $state/gate/tried)" "may: touch /var/lib/visiond/gate/x"
check "of which the same user may some outside" as visiond head -c 1 /dev/hwrng

# --- instances -------------------------------------------------------------------------------------------------------------------
check "an instance runs beside the service" systemctl start visiond
check "each has its socket" test -S /run/visiond/gate/detections.sock -a -S /run/visiond/detections.sock
check "stopping one" systemctl stop visiond
check "leaves the other" eval 'test -S /run/visiond/gate/detections.sock && systemctl is-active visiond@gate'
systemctl stop visiond@gate

# --- a hang ------------------------------------------------------------------------------------------------------------------------
override visiond.service WatchdogSec=4 Environment=LD_PRELOAD=/opt/hang.so
systemctl start visiond
flowing door
pid=$(property MainPID) restarts=$(property NRestarts)
mark
began=$(ms)
touch /run/hang
check "an ioctl that hangs gets it restarted" wait_for 120 eval '[ "$(property MainPID)" != '"$pid"' ]'
echo "a hang, WatchdogSec=4: ended after $(($(ms) - began)) ms" >>figures
rm /run/hang
check "it runs again" wait_for 120 replaced "$pid"
check "by systemd's watchdog" eval 'journalctl --no-pager --since "@${since%.*}" | grep -q "Watchdog timeout"'
check "which the log explains" eval 'journal ".MESSAGE_ID == \"bffd555b2c8e482eaf825c74d2c6ae40\"" | grep -q .'
check "frames arrive again" flowing door

# --- the whole process stops ----------------------------------------------------------------------------------------------------
pid=$(property MainPID)
kill -STOP "$pid"
check "a stopped process is restarted" wait_for 120 replaced "$pid"
check "frames arrive again" flowing door
rm -r /etc/systemd/system/visiond.service.d
systemctl daemon-reload
systemctl restart visiond

# --- reload ------------------------------------------------------------------------------------------------------------------------
pid=$(property MainPID)
cp /etc/visiond/visiond.toml /etc/visiond/before.toml
cat >>/etc/visiond/visiond.toml <<END
[[camera]]
name = "lamp"
[camera.source]
type = "pattern"
width = 64
height = 48
fps = 5
END
flowing door
check "systemctl reload takes a new configuration" systemctl reload visiond
check "its new camera runs" flowing lamp
check "the old one, too" flowing door
check "in the same process" equal "$(property MainPID) $(property ActiveState)" "$pid active"
mark
echo '[[camera' >>/etc/visiond/visiond.toml
systemctl reload visiond
refused() { journalctl --sync 2>/dev/null; journal '.PRIORITY == "3"' | grep -q visiond.toml; }
check "an invalid configuration is an error in the journal" wait_for 60 refused
check "and changes nothing" flowing lamp
check "the process is the same" equal "$(property MainPID) $(property ActiveState)" "$pid active"
cp /etc/visiond/before.toml /etc/visiond/visiond.toml
systemctl restart visiond

# --- kill -9 -----------------------------------------------------------------------------------------------------------------------
restarts=$(property NRestarts)
came_back=0 longest=0 kills=3
[ "$version" -ne 252 ] || kills=20
while :; do :; done &
load=$!
for _ in $(seq $kills); do
  flowing door 2 || break
  pid=$(property MainPID)
  began=$(ms)
  kill -KILL "$pid"
  wait_for 120 replaced "$pid" || break
  took=$(($(ms) - began))
  [ $took -le $longest ] || longest=$took
  came_back=$((came_back + 1))
done
kill $load
echo "kill -9 under load: $came_back times running again, at most $longest ms later" >>figures
check "killed $kills times, it runs again each time" equal "$came_back $(($(property NRestarts) - restarts))" "$kills $kills"
check "frames arrive after the last" flowing door
systemctl stop visiond
whole() { [ "$(tail -c 1 $state/messages.jsonl | od -An -tx1 | tr -d ' ')" = 0a ] && [ "$(jq -c .schema $state/messages.jsonl | wc -l)" = "$(wc -l <$state/messages.jsonl)" ]; }
check "no message is half written" whole
cat figures
