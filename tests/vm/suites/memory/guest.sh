. /opt/lib.sh

state=/var/lib/visiond
check "the user is made" systemd-sysusers
check "the folder for configurations is made" systemd-tmpfiles --create visiond.conf
mkdir -p /etc/systemd/system/visiond.service.d
printf '[Service]\nMemoryMax=200M\nMemorySwapMax=0\n' >/etc/systemd/system/visiond.service.d/test.conf
systemctl daemon-reload

messages() { if [ -f $state/messages.jsonl ]; then grep -c "\"camera\":\"$1\"" $state/messages.jsonl || true; else echo 0; fi; }
property() { systemctl show -p "$1" --value visiond; }
said() { journalctl -o cat --no-pager -u visiond | grep -q "$1"; }
# How often the kernel ended a process of the service for its memory.
killed() { sed -n 's/^oom_kill //p' /sys/fs/cgroup/system.slice/visiond.service/memory.events; }

# --- a camera whose program takes all memory, once it may ---------------------------------------------------------------
cat >/opt/eater <<'END'
#!/bin/sh
# Frames of 64x48, then all memory.
echo 'YUV4MPEG2 W64 H48 F10:1 C420'
until [ -e /run/visiond/eat ]; do echo FRAME; head -c 4608 /dev/zero; sleep 0.1; done
rm /run/visiond/eat
exec tail /dev/zero
END
chmod 755 /opt/eater
cat >/etc/visiond/visiond.toml <<END
[engine]
backend = "rten"
threads = 1
load_memory_bytes = "4 GiB"
[[model]]
name = "bars"
path = "/opt/tiny.onnx"
card = "/opt/tiny.toml"
[[camera]]
name = "door"
source = { type = "pattern", width = 64, height = 48, fps = 5 }
[[camera]]
name = "yard"
source = { type = "command", command = ["/opt/eater"], container = "y4m", timeout = "10 min" }
[[sink]]
type = "file"
path = "$state/messages.jsonl"
END
check "it starts" systemctl start visiond
check "a camera streams" flowing door
check "and so does the program" flowing yard
pid=$(property MainPID)
check "the program would be ended before visiond" equal "$(cat "/proc/$(pgrep -o -x eater)/oom_score_adj")" 900
touch /run/visiond/eat
check "the kernel ends it for its memory" wait_for 120 eval '[ "$(killed)" -ge 1 ]'
check "its camera says so" wait_for 60 said 'was ended by SIGKILL'
check "the other camera streams on" flowing door
check "and the program again" flowing yard
check "visiond is the same process" equal "$(property MainPID) $(property ActiveState) $(property NRestarts)" "$pid active 0"

# --- a model that needs more than the service has, and less than `load_memory_bytes` ------------------------------------
before=$(killed)
sed -i 's|/opt/tiny|/opt/large|' /etc/visiond/visiond.toml
check "a reload tries another model" systemctl reload visiond
check "its trial ends at what the service's limit leaves, with the remedy" wait_for 120 said "service's memory limit leaves; raise MemoryMax="
check "without the kernel ending a process" equal "$(killed)" "$before"
check "visiond runs on with the first" flowing door
check "as the same process" equal "$(property MainPID) $(property NRestarts)" "$pid 0"
check "it ends in order" systemctl stop visiond
