#!/usr/bin/env python3
"""Writes a container image: Debian's packages as one layer, visiond's package as another.

    image.py IMAGE.tar VISIOND.deb DEBIAN.deb...

The file is an OCI image layout in a tar archive, and an archive of `docker save` as well, so that old versions of Docker load it.
Needs neither root nor a container runtime, only dpkg-deb. The same packages give the same digests, except that another zlib can
compress the layers differently: then the image's id (the digest of its configuration) is still the same.
"""

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

# Above the ids that systems give their users. A number, because Kubernetes cannot see that a name is not root's.
USER = 10001
# What visiond's package has for systemd, a shell and a reader.
FOR_SYSTEMS = re.compile(r"usr/(lib|share/(man|bash-completion|zsh|fish|lintian|visiond/systemd))(/|$)")
# Also of Debian's packages: documents but licences, which must stay.
DOCUMENTS = re.compile(r"usr/share/(doc/[^/]+/(?!copyright$)|man/|info/|locale/|lintian/|bug/)")
CERTIFICATES = "usr/share/ca-certificates/mozilla/"

CONFIG = {
    "User": f"{USER}:{USER}",
    "Entrypoint": ["/usr/bin/visiond"],
    "Cmd": ["run", "/etc/visiond/visiond.toml"],
    "WorkingDir": "/var/lib/visiond",
    "StopSignal": "SIGTERM",
    "Env": [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        # As systemd sets them for the service. The cache is in the state folder, so that one volume keeps both.
        "RUNTIME_DIRECTORY=/run/visiond",
        "STATE_DIRECTORY=/var/lib/visiond",
        "CACHE_DIRECTORY=/var/lib/visiond/cache",
        # Where Docker and Podman put secrets.
        "CREDENTIALS_DIRECTORY=/run/secrets",
        # For NVIDIA's container runtime: the driver's libraries for CUDA, the video engine and NVML.
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility",
    ],
    # Docker's own field, which OCI ignores.
    "Healthcheck": {
        "Test": ["CMD", "/usr/bin/visiond", "top", "--once"],
        "Interval": 30 * 10**9,
        "Timeout": 15 * 10**9,
        "StartPeriod": 60 * 10**9,
        "Retries": 3,
    },
}


class Layer:
    """The files of one layer, by path."""

    def __init__(self):
        self.entries = {}
        # Of the newest file of its packages.
        self.time = 0

    def add(self, name, content=b"", kind=tarfile.REGTYPE, mode=0o644, owner=0, target=""):
        """Adds a file, folder or link that no package has."""
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.size, info.mtime, info.linkname = kind, mode, len(content), self.time, target
        info.uid = info.gid = owner
        self.entries[name] = (info, content)

    def package(self, path, left_out):
        """Adds a package's files, and its control file where scanners look for it."""
        archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            for info in files:
                info.name = info.name[2:] if info.name.startswith("./") else info.name
                if info.name in ("", ".") or left_out.match(info.name):
                    continue
                # As numbers: names depend on the machine that unpacks them.
                info.uname = info.gname = ""
                self.time = max(self.time, int(info.mtime))
                self.entries[info.name] = (info, files.extractfile(info).read() if info.isreg() else b"")
        control = subprocess.run(["dpkg-deb", "--field", path], stdout=subprocess.PIPE, check=True).stdout
        self.add(f"var/lib/dpkg/status.d/{field(control, 'Package')}", control)

    def archive(self):
        """The layer as a tar archive, in the order of paths."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as files:
            for _, (info, content) in sorted(self.entries.items()):
                files.addfile(info, io.BytesIO(content))
        return packed.getvalue()


def field(control, name):
    return re.search(rf"^{name}: (.*)$", control.decode(), re.M)[1]


def debian(packages):
    """The layer below visiond: what a program that is linked with glibc needs."""
    layer = Layer()
    for path in packages:
        layer.package(path, DOCUMENTS)
    # As update-ca-certificates does; visiond and OpenSSL read it.
    certificates = [content for name, (_, content) in sorted(layer.entries.items()) if name.startswith(CERTIFICATES)]
    layer.add("etc/ssl/certs/ca-certificates.crt", b"".join(certificates))
    # As base-files' script does, so that other images of Debian can be copied over this one.
    layer.add("var/run", kind=tarfile.SYMTYPE, mode=0o777, target="/run")
    layer.add("var/lock", kind=tarfile.SYMTYPE, mode=0o777, target="/run/lock")
    return layer


def visiond(package):
    """visiond's layer, with its user and the folders that it writes to."""
    layer = Layer()
    layer.package(package, re.compile(f"{FOR_SYSTEMS.pattern}|{DOCUMENTS.pattern}"))
    layer.add(
        "etc/passwd",
        b"root:x:0:0:root:/root:/usr/sbin/nologin\n"
        b"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        b"visiond:x:%d:%d:vision daemon:/var/lib/visiond:/usr/sbin/nologin\n" % (USER, USER),
    )
    # `video` as in Debian and Ubuntu, so that --group-add accepts the name. The number of `render` differs between machines.
    layer.add("etc/group", b"root:x:0:\nvideo:x:44:\nnogroup:x:65534:\nvisiond:x:%d:\n" % USER)
    for name in ("var/lib/visiond", "var/lib/visiond/cache"):
        layer.add(name, kind=tarfile.DIRTYPE, mode=0o750, owner=USER)
    # runc gives a tmpfs the mode of the folder that it covers, and root as its owner.
    layer.add("run/visiond", kind=tarfile.DIRTYPE, mode=0o1777)
    return layer


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def as_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def compressed(content):
    packed = io.BytesIO()
    # Without a name and a time.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=packed, mtime=0) as file:
        file.write(content)
    return packed.getvalue()


class Archive:
    """The files of the image."""

    def __init__(self):
        self.files = {}

    def blob(self, content, kind):
        """Adds a blob, and returns its descriptor."""
        name = digest(content)
        self.files["blobs/" + name.replace(":", "/")] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": name, "size": len(content)}

    def write(self, path, time):
        folders = {str(parent) for name in self.files for parent in Path(name).parents} - {"."}
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
            for name in sorted([*folders, *self.files]):
                info = tarfile.TarInfo(name)
                info.mtime, info.mode, info.type = time, 0o755, tarfile.DIRTYPE
                if name in self.files:
                    info.mode, info.type, info.size = 0o644, tarfile.REGTYPE, len(self.files[name])
                archive.addfile(info, io.BytesIO(self.files.get(name, b"")))


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    path, package, *base = sys.argv[1:]
    control = subprocess.run(["dpkg-deb", "--field", package], stdout=subprocess.PIPE, check=True).stdout
    version = field(control, "Version")
    layers = [debian(sorted(base)), visiond(package)]
    created = datetime.fromtimestamp(layers[1].time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    archives = [layer.archive() for layer in layers]
    image = Archive()
    config = {
        "created": created,
        "architecture": field(control, "Architecture"),
        "os": "linux",
        "config": {
            **CONFIG,
            "Labels": {
                "org.opencontainers.image.title": "visiond",
                "org.opencontainers.image.description": field(control, "Description"),
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(archive) for archive in archives]},
        "history": [{"created": created, "created_by": text} for text in ("Debian's packages", f"visiond {version}")],
    }
    described = image.blob(as_json(config), "config.v1+json")
    packed = [image.blob(compressed(archive), "layer.v1.tar+gzip") for archive in archives]
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": described, "layers": packed}
    # One name: Podman does not load an archive with two.
    names = {"io.containerd.image.name": "docker.io/library/visiond:latest", "org.opencontainers.image.ref.name": "latest"}
    entry = {**image.blob(as_json(manifest), "manifest.v1+json"), "annotations": names}
    image.files["oci-layout"] = as_json({"imageLayoutVersion": "1.0.0"})
    image.files["index.json"] = as_json({"schemaVersion": 2, "manifests": [entry]})
    # For `docker load` before Docker 25.
    place = lambda blob: "blobs/" + blob["digest"].replace(":", "/")
    tags = ["visiond:latest", f"visiond:{version}"]
    loaded = {"Config": place(described), "RepoTags": tags, "Layers": [place(blob) for blob in packed]}
    image.files["manifest.json"] = as_json([loaded])
    image.write(path, layers[1].time)


if __name__ == "__main__":
    main()
