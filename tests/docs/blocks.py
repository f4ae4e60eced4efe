#!/usr/bin/env python3
"""Executes the commands in the documents, in their order, as a reader would; run by tests/docs/run in a system of its own.

    blocks.py [DOCUMENT...]

Each command of a block of `sh` is executed by the user `user`, who may use sudo, in that user's home. It passes when it ends with
status 0. One that has no end by itself (a daemon, a follower of a log) passes when it printed what is wanted, and is ended then. A
block that begins with cargo or a file of the sources runs in their folder.
A block of TOML is the configuration from then on, completed by a model, a picture as the camera `door` and a socket; README's is
the file that its commands name. A block whose first line is a comment with a path is that file.

Commands that are not executed are marked in the documents, and listed at the end: a block after a comment `<!-- needs A
CAMERA -->` or
`<!-- tested by SCRIPT -->`, a command with `; needs A CAMERA` in the comment behind it. `SETTINGS` below has what a reader is asked
to fill in, `BEFORE` what a document takes as given, `AFTER` what must be true at its end.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path("/home/user")
SOURCES = HOME / "visiond"
CONFIG = Path("/etc/visiond/visiond.toml")
LOGS = Path("/var/log/documents")
EDITED = Path("/opt/edited")
# Only turns a hang into a failure.
HANG_S = 300

# The placeholders that a reader fills in, in this order.
SETTINGS = [
    (r"arm64\b", "amd64"),
    (r"\./visiond_\*_", "/opt/visiond_*_"),
    (r"\./visiond_NEW_", "/opt/newer/visiond_*_"),
    (r"\bBROKER\b", "127.0.0.1"),
    (r"192\.168\.1\.10\b", "127.0.0.1"),
]
# A server or device that the rest of its document needs: it is ended with the document, or where the document restarts a service.
SERVERS = r"^(nats-server|visiond bundle follow)\b"
# Commands without an end, and their output when they work; `$ COMMAND` is one that then succeeds.
ENDLESS = {
    r"^visiond run\b": r"camera gate: 046d:082d is missing",
    r"^journalctl .*-f\b": r"visiond\[\d+\]: .*camera (door|gate|camera)\b",
    r"^mosquitto_sub\b": r'"schema":"visiond/1"',
    r"^socat\b": r'^\["door",[1-9]',
    r"^curl .* -N\b": r'"label":"person"',
    r"^nats-server\b": r"Server is ready",
    r"^visiond bundle follow\b": r"its group has no version of it yet",
    r"^ssh -L\b": "$ curl --silent --fail --output /dev/null http://localhost:8790/",
}


class Block:
    """A fenced block of a document: its place, its content, and why it is not executed."""

    def __init__(self, document, line, language, text, mark):
        self.document, self.line, self.language, self.text, self.mark = document, line, language, text, mark

    def commands(self):
        """The commands, as (line, text): a backslash at the end, or an open quote or bracket, continues a command."""
        found, pending, begun = [], "", 0
        for number, line in enumerate(self.text.splitlines(), self.line + 1):
            begun = number if not pending else begun
            pending += line + "\n"
            if line.endswith("\\") or not complete(pending):
                continue
            if pending.strip() and not re.match(r"\s*#", pending):
                found.append((begun, pending.strip()))
            pending = ""
        return found


def complete(text):
    """Whether a shell can read the text as whole commands."""
    return subprocess.run(["bash", "-n", "-c", text], stderr=subprocess.PIPE).stderr == b""


def comment(command):
    """Returns the text of the comment after a command."""
    match = re.search(r"\s{2,}#\s*(.*)$", command)
    return match[1] if match else ""


def blocks(document):
    """The fenced blocks of a document."""
    text = (SOURCES / document).read_text()
    for match in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.S | re.M):
        above = text[: match.start()].rstrip("\n").rsplit("\n", 1)[-1]
        mark = re.match(r"\s*<!-- ((?:needs|tested by) .*) -->", above)
        inner = re.sub(rf"^{match[1]}", "", match[3], flags=re.M)
        yield Block(document, text.count("\n", 0, match.start()) + 1, match[2], inner, mark and mark[1])


def filled_in(text):
    for pattern, value in SETTINGS:
        text = re.sub(pattern, value, text)
    return text


def end(process):
    """Ends a command and its children as Ctrl-C does, and kills them if that fails."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Run:
    """The run over all documents."""

    def __init__(self):
        self.passed, self.failed, self.left_out, self.servers = 0, 0, [], []
        self.log = None
        LOGS.mkdir(parents=True, exist_ok=True)

    def document(self, name):
        self.log = open(LOGS / (name.replace("/", "-") + ".log"), "w")
        print(f"{name}", flush=True)
        self.before(name)
        for block in blocks(name):
            place = f"{name}:{block.line}"
            if block.language == "sh":
                if block.mark:
                    for line, command in block.commands():
                        self.left_out.append((f"{name}:{line}", command, block.mark))
                    continue
                folder = SOURCES if re.match(r"cargo |\./|tests/", block.text) else HOME
                for line, command in block.commands():
                    self.command(f"{name}:{line}", command, folder)
            elif block.language == "toml" and not block.mark:
                self.configure(place, block.text)
            elif block.language in ("", "ini", "nginx", "yaml") and not block.mark:
                self.file(place, block.text)
        if name in AFTER:
            self.log.write(f"\n{name}\n")
            self.log.flush()
            self.result(name, "what is true at its end", *self.execute(AFTER[name], HOME))
        self.end_servers()
        self.log.close()

    def end_servers(self):
        for server in self.servers:
            end(server)
        self.servers.clear()

    def command(self, place, command, folder):
        """Executes one command, and returns whether it worked."""
        words = comment(command)
        needed = re.search(r"(?:^|; |, which )(needs [^;,]*)", words)
        if needed:
            self.left_out.append((place, command, needed[1]))
            return
        EDITED.write_text("\n".join(re.sub(r"^(\[\w+\])\s+", r"\1\n", words).splitlines()) + "\n")
        text = filled_in(command)
        endless = next((wanted for pattern, wanted in ENDLESS.items() if re.search(pattern, text)), None)
        if re.search(r"systemctl restart (?!visiond)", text):
            self.end_servers()
        # It edits only on a terminal.
        if "systemctl edit" in text:
            text = f"script --quiet --return --command {shlex.quote(text.split('  #')[0])} /dev/null"
        self.log.write(f"\n{place}\n$ {text}\n")
        self.log.flush()
        good, note = self.execute(text, folder, endless)
        self.result(place, command.splitlines()[0], good, note)

    def execute(self, text, folder, endless=None):
        """Whether a command worked, and how it ended. `endless` is the output of a working one without an end."""
        began = os.fstat(self.log.fileno()).st_size
        environment = {
            "HOME": str(HOME), "USER": "user", "LOGNAME": "user", "SHELL": "/bin/bash", "LANG": "C.UTF-8", "TERM": "xterm",
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "XDG_RUNTIME_DIR": "/run/user/1000",
            "SUDO_EDITOR": "/opt/editor", "SYSTEMD_EDITOR": "/opt/editor", "PAGER": "cat", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/opt", "SYSTEMD_PAGER": "cat",
        }
        # A new login has the groups that a command before it gave the user.
        process = subprocess.Popen(
            ["setpriv", "--reuid=user", "--regid=user", "--init-groups", "bash", "-o", "pipefail", "-c", text],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL if endless is None else subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
        )
        until = time.monotonic() + HANG_S
        while process.poll() is None and time.monotonic() < until:
            if endless is not None and self.shows(endless, began):
                if re.match(SERVERS, text):
                    self.servers.append(process)
                else:
                    end(process)
                return True, "works"
            time.sleep(0.05)
        if process.poll() is None:
            end(process)
            return False, f"did not end within {HANG_S} s" if endless is None else f"did not show `{endless}` within {HANG_S} s"
        if endless is not None:
            return False, f"ended by itself with status {process.returncode}"
        return process.returncode == 0, f"status {process.returncode}"

    def shows(self, wanted, began):
        """Whether a command without an end works: by its output since `began`, or by a probe."""
        if wanted.startswith("$ "):
            return subprocess.run(wanted[2:], shell=True).returncode == 0
        with open(self.log.name, errors="replace") as log:
            log.seek(began)
            return re.search(wanted, log.read(), re.M) is not None

    def configure(self, place, text):
        """Makes a block of TOML the configuration, completed as needed."""
        if re.match(r"\[(head|extra_inputs|input|detect|classes)\]", text):
            return
        readers = place.startswith("README.md")
        path = HOME / "visiond.toml" if readers else CONFIG
        path.write_text(text if readers else configuration(filled_in(text)))
        self.log.write(f"\n{place}\n{path.read_text()}")
        self.log.flush()
        command = "visiond check" if readers else "sudo visiond check && sudo systemctl restart visiond"
        self.result(place, "the configuration", *self.execute(command, HOME))

    def file(self, place, text):
        """Writes a block that names its file."""
        first = text.splitlines()[0]
        if first == "# systemctl edit visiond":
            path = Path("/etc/systemd/system/visiond.service.d/override.conf")
        elif re.match(r"# /[\w./-]+$", first):
            path = Path(first[2:])
        else:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(filled_in(text))
        if path.parts[2] == "systemd":
            subprocess.run(["systemctl", "daemon-reload"], check=True)
        self.log.write(f"\n{place}\n{path}\n{text}")
        self.result(place, f"the file {path}", True, "written")

    def result(self, place, what, good, note):
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        print(f"  {'ok  ' if good else 'FAIL'} {place}  {what}" + ("" if good else f"\n       {note}"), flush=True)
        if not good:
            self.log.flush()
            printed = Path(self.log.name).read_text(errors="replace").rpartition(f"\n{place}\n")[2]
            asked = "journalctl --unit visiond --priority warning --no-pager --output cat --lines 3"
            journal = subprocess.run(asked.split(), stdout=subprocess.PIPE, text=True).stdout
            for line in printed.splitlines()[-12:] + ["the last warnings of visiond:", *journal.splitlines()]:
                print("       | " + line, flush=True)

    def before(self, name):
        """The state that a document assumes."""
        prepare = BEFORE.get(name, "true")
        self.log.write(f"\n{name}\n")
        self.log.flush()
        script = RESET + prepare
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=HOME, stdout=self.log, stderr=subprocess.STDOUT)
        if done.returncode:
            self.result(name, "what it takes as given", False, f"status {done.returncode}")


def configuration(block):
    """A whole configuration around a block: with camera, models and sink if it has none."""
    whole = ""
    if not re.search(r"^\[\[model\]\]", block, re.M):
        listed = re.search(r"^models = .*", block, re.M)
        names = re.findall(r'(?:^models = \[|, |name = )"([^"]+)"', listed[0]) if listed else ["objects"]
        whole += "".join(f'[[model]]\nname = "{name}"\npath = "/usr/share/visiond/models/nanodet-g-416.onnx"\n\n' for name in names)
    if re.match(r"\[camera\.", block):
        whole += '[[camera]]\nname = "door"\n'
    elif not re.search(r"^\[\[camera\]\]", block, re.M):
        whole += '[[camera]]\nname = "door"\nsource = { type = "images", path = "/opt/pictures", fps = 5, repeat = true }\n\n'
    end = ""
    if not re.search(r"^\[\[sink\]\]", block, re.M):
        end = '\n[[sink]]\ntype = "unix"\npath = "/run/visiond/detections.sock"\n'
    return whole + block + end


# The machine's state after the package was installed and has run its first camera.
RESET = """
rm -rf /etc/systemd/system/visiond.service.d /etc/systemd/system/visiond*.service
if [ -x /usr/bin/visiond ]; then
  [[ $(dpkg-query --show --showformat '${Version}' visiond) != *+1 ]] || apt-get -qq install --allow-downgrades /opt/visiond_*.deb
  cp /opt/door.toml /etc/visiond/visiond.toml
  systemctl daemon-reload; systemctl reset-failed visiond || true; systemctl restart visiond
fi
"""
PICTURES = """
mkdir -p pictures
for picture in astronaut chelsea coffee; do ffmpeg -v error -y -i visiond/tests/media/$picture.png pictures/$picture.jpg; done
cp pictures/astronaut.jpg photo.jpg
cp visiond/config/models/nanodet-g-416.onnx yolo11n.onnx
cp visiond/config/models/nanodet-g-416.toml yolo11n.toml
chown -R user: .
"""
BEFORE = {
    "README.md": PICTURES,
    "docs/bundles.md": PICTURES,
    # Another document has made bundles of the same names.
    "docs/fleet.md": PICTURES + "rm -rf team.* street-*.visiond expected.json nats-store /var/lib/visiond-models/street; systemctl stop nats-server",
    "docs/metrics.md": """
        head -c 24 /dev/urandom | base64 >/etc/prometheus/visiond.token
        install -m 640 -g visiond /etc/prometheus/visiond.token /etc/visiond/http.token
        chmod 644 /etc/prometheus/visiond.token
        printf '[http]\\nlisten = ["0.0.0.0:8790"]\\ntoken = "/etc/visiond/http.token"\\n' >>/etc/visiond/visiond.toml
        systemctl restart visiond
    """,
    "docs/nats.md": "systemctl stop nats-server",
    "docs/operations.md": "mkdir -p visiond/target/release; cp /usr/bin/visiond visiond/target/release/; chown -R user: visiond/target",
}
# A document that needs another one's files.
NEEDS = {"docs/mqtt.md": "docs/certificates.md", "docs/nats.md": "docs/certificates.md"}
CONNECTED = """
until curl --silent --unix-socket /run/visiond/http.sock http://localhost/api/v1/status | jq --exit-status '.sinks[] | select(.kind == "TYPE") | .connected'
do sleep 0.5; done
"""
AFTER = {
    "docs/nats.md": CONNECTED.replace("TYPE", "nats"),
    "docs/metrics.md": """
        promtool check config /etc/prometheus/prometheus.yml && sudo systemctl restart prometheus
        until curl --silent 'http://127.0.0.1:9090/api/v1/query?query=visiond_ready' | jq --exit-status '.data.result[0].value[1] == "1"'; do sleep 0.5; done
    """,
}


def main():
    names = ["README.md", *sorted(str(path.relative_to(SOURCES)) for path in (SOURCES / "docs").rglob("*.md"))]
    if len(sys.argv) > 1:
        unknown = set(sys.argv[1:]) - set(names)
        if unknown:
            sys.exit(f"docs: there is no document {', '.join(sorted(unknown))}: name one as README.md or docs/mqtt.md")
        asked = {*sys.argv[1:], *(NEEDS[name] for name in sys.argv[1:] if name in NEEDS)}
        names = [name for name in names if name in asked]
    run = Run()
    subprocess.run(["bash", "-euo", "pipefail", "-c", MACHINE], check=True, stdout=subprocess.DEVNULL)
    Path("/opt/door.toml").write_text(configuration(""))
    if names[0] != "README.md":
        subprocess.run("apt-get -qq install /opt/visiond_*.deb && usermod -aG visiond,video user", shell=True, check=True, stdout=subprocess.DEVNULL)
    for name in names:
        run.document(name)
    print("\nnot executed")
    for place, command, reason in run.left_out:
        print(f"  {place}  {command.splitlines()[0][:70]}: {reason}")
    print(f"\n{run.passed} passed, {run.failed} failed, {len(run.left_out)} skipped")
    sys.exit(1 if run.failed else 0)


# The machine's state before the first document.
MACHINE = """
version=$(dpkg-deb --field /opt/visiond.deb Version)
mv /opt/visiond.deb /opt/visiond_${version}_$(dpkg --print-architecture).deb
printf '#!/bin/sh\\n[ ! -s /opt/edited ] || [ ! -w "$1" ] || case $1 in *.toml*) ;; *) cat /opt/edited >"$1" ;; esac\\n' >/opt/editor
chmod 755 /opt/editor
printf 'Defaults env_keep += "SYSTEMD_EDITOR SUDO_EDITOR"\\n' >/etc/sudoers.d/editor
mkdir -p /opt/newer /opt/raw /opt/pictures
cp /home/user/visiond/tests/media/astronaut.png /opt/pictures/
dpkg-deb --raw-extract /opt/visiond_*.deb /opt/raw
sed -i 's/^Version: .*/&+1/' /opt/raw/DEBIAN/control
dpkg-deb -Znone --root-owner-group --build /opt/raw /opt/newer
printf '127.0.0.1 localhost gate gate.local yard broker.example.org homeassistant.local\\n' >/etc/hosts
usermod -aG adm user
su user -c 'mkdir -m 700 ~/.ssh; ssh-keygen -q -N "" -f ~/.ssh/id_ed25519 -t ed25519; cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
  echo "StrictHostKeyChecking accept-new" >~/.ssh/config'
mkdir -p /run/user/1000 && chown user: /run/user/1000 && chmod 700 /run/user/1000
echo fail-with-body >/home/user/.curlrc
"""

if __name__ == "__main__":
    main()
