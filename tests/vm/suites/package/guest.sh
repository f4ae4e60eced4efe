# shellcheck shell=bash
. /opt/lib.sh

# Names of files that a package could leave; not those of systemd, udev, dpkg and useradd themselves.
files() {
  find /etc /usr /var /run/visiond* -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/lib/systemd -o -path /var/cache/ldconfig \
    -o -path /var/tmp -o -name '*-' -o -name .updated -o -name hwdb.bin -o -name shells -o -name shells.state \) -prune -o -print 2>/dev/null | sort
}
property() { systemctl show --value -p "$1" "${2:-visiond.service}"; }
is_in() { id -nG visiond | tr ' ' '\n' | grep -qx "$1"; }
seen() { wc -l 2>/dev/null <"$1" || echo 0; }
# detects FOLDER: more lines come to its file, and they name the pattern's bars.
detects() {
  local before
  before=$(seen "$1/messages.jsonl")
  wait_for 60 eval "[ \$(seen $1/messages.jsonl) -gt $((before + 2)) ]" || { echo "no new lines in $1"; return 1; }
  tail -n1 "$1/messages.jsonl" | grep '"label":"white"'
}

# Checks that cannot differ between systems run on one of them.
version=$(systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
full=no
[ "$(dpkg --print-architecture) $version" != "arm64 257" ] || full=yes

# --- first installation: no camera ---------------------------------------------------------------------------------
files >before
check "it installs" dpkg -i /opt/first.deb
cp /run/check install.txt
check "dpkg misses nothing" eval '! dpkg --audit visiond | grep .'
check "the service is enabled" systemctl is-enabled visiond
check "the service runs without a camera" systemctl is-active visiond
check "it runs as its user" equal "$(ps -o user= -p "$(property MainPID)")" visiond
check "its user may open cameras" is_in video
check "its user may use a GPU" is_in render
check "the socket is for its group" equal "$(stat -c '%U:%G %a' /run/visiond/detections.sock)" "visiond:visiond 660"
check "the configuration is for root and its group" equal "$(stat -c '%U:%G %a' /etc/visiond)" "root:visiond 750"
if [ "$version" -ge 253 ]; then type=notify-reload; else type=notify; fi
check "the unit is of the kind that systemd $version knows" equal "$(property Type)" $type
check "systemd has no warning about the units" eval '! journalctl -b | grep -E "visiond(@)?\.service:[0-9]+:"'
check "the default configuration is valid" visiond check /etc/visiond/visiond.toml
check "the sample model is found by default" visiond inspect /usr/share/visiond/models/nanodet-g-416.onnx
for page in man1/visiond.1 man1/visiond-run.1 man5/visiond.toml.5; do
  check "there is a page $page" gzip -t /usr/share/man/$page.gz
done
check "an update of systemd is noticed" eval 'dpkg-trigger --by-package=systemd /lib/systemd/systemd && dpkg --configure --pending'

# --- the owner's configuration -------------------------------------------------------------------------------------
load_vivid n_devs=2 node_types=0x1,0x1 input_types=0x00,0x00 num_inputs=1,1
for instance in visiond second; do
  camera=$(node "vivid-00$([ $instance = second ] && echo 1 || echo 0)-vid-cap")
  write_config /etc/visiond/$instance.toml door="$camera"
  folder=/var/lib/visiond
  [ $instance = visiond ] || folder=/var/lib/visiond/second
  sed -i -e 's/^type = "v4l2"/&\nwidth = 320\nheight = 180\nfps = 10/' -e "s|^path = .*/messages|path = \"$folder/messages|" \
    /etc/visiond/$instance.toml
done
cp /etc/visiond/visiond.toml owned.toml
check "it starts again with the owner's configuration" systemctl restart visiond
check "it detects" detects /var/lib/visiond
check "selftest runs in the unit's sandbox, with the same results as in the shell" \
  visiond selftest --only board,nodes,cuda,sandbox --report selftest.tar.gz
cp /run/check selftest.txt
check "it reports how much it compared" grep -q "checks compared, 0 differ" selftest.txt
check_not "its report names this machine" grep -qaw "$(hostname)" <(zcat selftest.tar.gz)
if [ $full = yes ]; then
  check "an instance starts" systemctl start visiond@second
  check "the instance detects" detects /var/lib/visiond/second
fi

# --- update --------------------------------------------------------------------------------------------------------
first=$(property MainPID) second=$(property MainPID visiond@second)
check "an update installs" dpkg --force-confdef --force-confold -i /opt/next.deb
check "it is the new version" equal "$(dpkg-query -W -f '${Version}' visiond)" 99.0
check "the configuration is the owner's" cmp /etc/visiond/visiond.toml owned.toml
check "the new default lies beside it" grep -q "Of the update" /etc/visiond/visiond.toml.dpkg-dist
check_not "the service is a new process" equal "$(property MainPID)" "$first"
check "it detects after the update" detects /var/lib/visiond
if [ $full = yes ]; then
  check_not "the instance is a new process" equal "$(property MainPID visiond@second)" "$second"
  check "the instance detects after the update" detects /var/lib/visiond/second
fi
check "nothing failed on the way" equal "$(property NRestarts)$(property NRestarts visiond@second)" 00

# --- removal, and back ---------------------------------------------------------------------------------------------
check "it is removed" dpkg -r visiond
check_not "no process is left" pgrep -x visiond
check_not "the program is gone" test -e /usr/bin/visiond
check "configuration and state stay" test -e /etc/visiond/visiond.toml -a -e /var/lib/visiond/messages.jsonl
if [ $full = yes ]; then
  check "it is installed again" dpkg --force-confdef --force-confold -i /opt/next.deb
  check "and runs as before" detects /var/lib/visiond
  systemctl disable --now visiond
  check "it is installed over a disabled one" dpkg --force-confdef --force-confold -i /opt/next.deb
  check_not "which stays off" systemctl is-active visiond
fi

# --- purge ---------------------------------------------------------------------------------------------------------
check "it is purged" dpkg -P visiond
check_not "the user is gone" getent passwd visiond
check_not "the group is gone" getent group visiond
files >after
check "no file is left" diff before after
check_not "no line is left" grep -rI visiond /etc/passwd /etc/group /etc/shadow /etc/gshadow /etc/systemd
check_not "systemd knows no such unit" systemctl cat visiond.service
