. /opt/lib.sh
check "a virtual camera loads" load_vivid n_devs=1 node_types=0x1 input_types=0x00 num_inputs=1 multiplanar=1
door=$(node vivid-000-vid-cap)

# field CYCLE NAME: of the lines about what the process holds.
field() { jq -r "select(.cycle == $1) | .$2" cycles.jsonl; }
opened_and_closed() {
  visiond capture --camera "$door" --width 320 --height 180 --fps 60 --cycles "$1" --json >cycles.jsonl
}
check "the camera is opened and closed 500 times" opened_and_closed 500
for held in descriptors threads mappings; do
  check "the same number of $held" equal "$(field 500 $held)" "$(field 1 $held)"
done
check "the same resident set, to 256 KiB" \
  between $(($(field 500 resident_bytes) - $(field 1 resident_bytes))) -100000000 262144
cat cycles.jsonl

write_config visiond.toml door="$door"
sed -i 's/^type = "v4l2"/&\nwidth = 320\nheight = 180\nfps = 25/; s/^log_interval.*/log_interval = "0"/' visiond.toml
sed -i 's|^path = ".*/messages.jsonl"|path = "/run/messages.jsonl"\nrotate_bytes = "1 MiB"\nrotate_keep = 0|' visiond.toml
start_visiond visiond.toml
grew() { [ "$(stat -c %s /run/messages.jsonl 2>/dev/null || echo 0)" -ne "$1" ]; }
new() { wait_for 60 grew "$(stat -c %s /run/messages.jsonl 2>/dev/null || echo 0)"; }
# Each return of the camera is a line here: to look again and again would keep the guest's processors busy.
exec 8< <(tail -n +1 -s 0.1 -f visiond.log | grep --line-buffered 'camera door: back after')
# reconnect TIMES: unplugged and plugged in, and seen again each time.
reconnect() {
  local i
  for i in $(seq "$1"); do
    echo vivid.0 >/sys/bus/platform/drivers/vivid/unbind
    echo vivid.0 >/sys/bus/platform/drivers/vivid/bind
    read -r -t 60 -u 8 || { echo "not back the ${i}th time"; tail -n 5 visiond.log; return 1; }
  done
}
check "the camera is seen" new
check "it is lost and found 20 times" reconnect 20
anonymous=$(anonymous_kb "$visiond_pid") resident=$(resident_kb "$visiond_pid")
descriptors=$(descriptors "$visiond_pid") threads=$(threads "$visiond_pid") mappings=$(mappings "$visiond_pid")
check "and 60 times more" reconnect 60
check "the same number of descriptors" equal "$(descriptors "$visiond_pid")" "$descriptors"
check "of threads" equal "$(threads "$visiond_pid")" "$threads"
# A thread's stack more or less; what is mapped again each time would be 60 more.
check "about the same number of mappings" between $(($(mappings "$visiond_pid") - mappings)) -20 20
# Not of the resident set: each line of code that first runs late brings up to 64 KiB of the program's file into it.
check "the same heap and stacks, to 96 KiB" between $(($(anonymous_kb "$visiond_pid") - anonymous)) -100000 96
echo "heap and stacks after 20 and 80 times: $anonymous KB, $(anonymous_kb "$visiond_pid") KB;" \
  "resident set: $resident KB, $(resident_kb "$visiond_pid") KB; $descriptors descriptors"
check "SIGTERM ends visiond" stop_visiond
check "it counted each return" between "$(summary '.cameras[0].restarts')" 80 90
