# shellcheck shell=bash
# Every suite's guest.sh starts with: . /opt/lib.sh
#
# The working folder is shared with the host: all files there are kept as a log. Each check prints one line; the
# script's status is 1 when any failed.

vm_failures=0
vm_started=()

# check "what is expected" COMMAND...: runs it in this shell; shows its output if it fails.
check() {
  local vm_what=$1
  shift
  if "$@" >/run/check 2>&1; then echo "ok    $vm_what"; else fail "$vm_what" "$(cat /run/check)"; fi
}

# As check, but the command must fail.
check_not() {
  local vm_what=$1
  shift
  if "$@" >/run/check 2>&1; then fail "$vm_what" "$(cat /run/check)"; else echo "ok    $vm_what"; fi
}

# fail "what is wrong" ["more"]: the test continues.
fail() {
  vm_failures=$((vm_failures + 1))
  echo "FAIL  $1"
  [ -z "${2-}" ] || printf '%s\n' "$2" | tail -n 20 | cut -c 1-400 | sed 's/^/      /'
}

# equal FOUND EXPECTED, between FOUND LEAST MOST (whole numbers): for check.
equal() { [ "$1" = "$2" ] || { echo "found $1, expected $2"; return 1; }; }
between() { [[ "$1" =~ ^-?[0-9]+$ ]] && [ "$1" -ge "$2" ] && [ "$1" -le "$3" ] || { echo "found $1, expected $2 to $3"; return 1; }; }

# wait_for SECONDS COMMAND...: until it succeeds; returns 1 after that time.
wait_for() {
  local until=$(($(ms) + $1 * 1000))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$(ms)" -lt $until ] || return 1
    sleep 0.05
  done
}

# Milliseconds since boot.
ms() { local up _; read -r up _ </proc/uptime; up=${up/./}; echo $((10#$up * 10)); }

# load_vivid OPTIONS...: virtual cameras, without the driver's text in their pictures, which would cover the bars.
load_vivid() {
  modprobe vivid "$@" || return 1
  udevadm settle
  wait_for 60 test -e /dev/video0 || return 1
  quiet_pictures
}

# Removes the text from the pictures; needed again after the driver was rebound.
quiet_pictures() {
  local folder
  for folder in /sys/class/video4linux/video*; do
    case $(cat "$folder/name") in *vid-cap) v4l2-ctl -d "/dev/${folder##*/}" -c osd_text_mode=2 || return 1 ;; esac
  done
}

# node NAME: the node of the camera with this name in sysfs, such as vivid-000-vid-cap.
node() {
  local folder
  for folder in /sys/class/video4linux/video*; do
    [ "$(cat "$folder/name" 2>/dev/null)" != "$1" ] || { echo "/dev/${folder##*/}"; return 0; }
  done
  echo "no camera is called $1" >&2
  return 1
}

# write_config FILE CAMERA=NODE...: the tiny model, these cameras, and messages in messages.jsonl.
write_config() {
  local file=$1 camera
  shift
  {
    printf '[status]\nlog_interval = "1 s"\n\n'
    printf '[[model]]\nname = "bars"\npath = "/opt/tiny.onnx"\ncard = "/opt/tiny.toml"\n'
    for camera in "$@"; do
      printf '\n[[camera]]\nname = "%s"\n[camera.source]\ntype = "v4l2"\ndevice = "%s"\n' "${camera%%=*}" "${camera#*=}"
    done
    printf '\n[[sink]]\ntype = "file"\npath = "%s/messages.jsonl"\n' "$PWD"
  } >"$file"
}

# start_visiond CONFIG [OPTIONS...]: in the background, log in visiond.log, at its end summary.json. Its process is
# $visiond_pid.
start_visiond() {
  local config=$1
  shift
  visiond run "$config" --summary-json summary.json "$@" >visiond.out 2>>visiond.log &
  visiond_pid=$!
  vm_started+=("$visiond_pid")
}

# stop_visiond: sends SIGTERM; succeeds when the daemon ends with status 0.
stop_visiond() {
  local status=0
  kill -TERM "$visiond_pid" || return 1
  wait_for 60 eval "! kill -0 $visiond_pid" || { echo "still there 60 s after SIGTERM"; kill -KILL "$visiond_pid"; return 1; }
  wait "$visiond_pid" || status=$?
  [ $status = 0 ] || { echo "ended with status $status"; return 1; }
}

alive() { kill -0 "$visiond_pid" 2>/dev/null; }

# summary FILTER: the output of jq for the last run's summary.
summary() { jq -r "$1" summary.json; }

# messages CAMERA: how many arrived so far. last_sequence CAMERA: the newest's number.
messages() { if [ -f messages.jsonl ]; then grep -c "\"camera\":\"$1\"" messages.jsonl || true; else echo 0; fi; }

# flowing CAMERA [COUNT]: succeeds once COUNT (default 3) more messages arrived; waits a minute at most.
flowing() {
  local before count=${2:-3}
  before=$(messages "$1")
  wait_for 60 eval "[ \$(messages $1) -ge $((before + count)) ]" || { echo "$(($(messages "$1") - before)) messages of $1 in 60 s"; return 1; }
}

# start_channels [COUNT]: the devices that the driver of a Jetson's cameras opens when a stream starts (board/channel.c).
# stop_channels removes them.
start_channels() {
  local last=/dev/capture-vi-channel$((${1:-1} - 1))
  modprobe cuse || return 1
  /opt/channel "${1:-1}" &
  vm_channels=$!
  vm_started+=("$vm_channels")
  wait_for 20 eval "[ \"\$(stat -c '%G %a' $last)\" = 'video 660' ]" || { echo "no $last"; return 1; }
}
stop_channels() { kill -TERM "$vm_channels" && wait "$vm_channels"; }

# Of a process: resident set in KB, its anonymous part (heap, stacks), number of descriptors, of threads, of mappings.
resident_kb() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"; }
anonymous_kb() { sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"; }
descriptors() { local list=(/proc/"$1"/fd/*); echo ${#list[@]}; }
mappings() { wc -l <"/proc/$1/maps"; }
threads() { local list=(/proc/"$1"/task/*); echo ${#list[@]}; }

vm_end() {
  local status=$? pid
  for pid in "${vm_started[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  # Also of a failed command whose status was not checked.
  [ $vm_failures -gt 0 ] && { echo "$vm_failures checks failed"; exit 1; }
  exit $status
}
trap vm_end EXIT
