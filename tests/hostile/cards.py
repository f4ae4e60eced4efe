"""Model cards, and the files of class names and of numbers that they name."""

import os

from cases import CONFIG, DONE, MODEL, Case, cut, damaged, nasty

GOOD = '''name = "tiny"
[input]
fit = "stretch"
[head]
family = "yolov8"
[detect]
score_threshold = 0.6
[classes]
names = ["white", "yellow", "cyan", "green", "magenta", "red", "blue", "black"]
'''


def contents(rng, good):
    for at, content in enumerate(cut(good, rng, 10)):
        yield f"cut-{at:02}", content
    for at, content in enumerate(damaged(good, rng, 16)):
        yield f"damaged-{at:02}", content
    text = good.decode()
    yield "empty", b""
    yield "byte-order-mark", b"\xef\xbb\xbf" + good
    yield "utf16", text.encode("utf-16")
    yield "latin1", good.replace(b"tiny", b"\xfc\xe4\xf6")
    yield "null", good.replace(b"tiny", b"ti\0ny")
    yield "nulls", bytes(1000)
    yield "10MB-comment", b"#" + b"x" * (10 << 20) + b"\n" + good
    yield "10MB-text", good.replace(b"tiny", b"x" * (10 << 20))
    yield "errors-100000", b"".join(b"key%d = 1\n" % at for at in range(100_000)) + good
    yield "tables-100000", good + b"".join(b"[t%d]\n" % at for at in range(100_000))
    yield "nested-lists", b"name = " + b"[" * 100_000 + b"]" * 100_000
    yield "nested-tables", b"name = " + b"{a=" * 100_000 + b"1" + b"}" * 100_000
    yield "nested-keys", b".".join([b"a"] * 100_000) + b" = 1"
    yield "nested-headers", b"[" + b".".join([b"a"] * 100_000) + b"]"
    yield "classes-100000", good.replace(b'"white"', b", ".join(b'"c%d"' % at for at in range(100_000)))
    yield "classes-none", text.split("names")[0].encode() + b"names = []"
    yield "classes-file-and-names", good + b'file = "names.txt"'
    numbers = ["-1", "0", "1e999", "nan", "-inf", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1_000_000_000_000", "0x7fffffffffffffff", '"many"', "[]", "{}", "1979-05-27", "true"]
    for key, section in (
        ("size", "input"), ("pad", "input"), ("scale", "input"), ("mean", "input"), ("std", "input"), ("crop_fraction", "input"), ("fit", "input"), ("family", "head"), ("strides", "head"),
        ("score_threshold", "detect"), ("iou_threshold", "detect"), ("max_detections", "detect"), ("names", "classes"), ("name", ""),
    ):  # fmt: skip
        for at, number in enumerate(numbers):
            lines = [line for line in text.splitlines() if line.split(" =")[0] != key]
            place = lines.index(f"[{section}]") + 1 if section else 0
            yield f"{key}-{at:02}", "\n".join([*lines[:place], f"{key} = {number}", *lines[place:]]).encode()
    yield "fraction-zero", good.replace(b"[input]", b'[input]\nscale = "1/0"')
    yield "fraction-nan", good.replace(b"[input]", b'[input]\nscale = "nan/1"')
    yield "size-huge", good.replace(b"[input]", b"[input]\nsize = [16384, 16384]")
    yield "inputs-huge", good + b"[inputs]\nx = [" + b"1e308, " * 10_000 + b"]"
    for name, text in nasty().items():
        escaped = "".join(f"\\U{ord(letter):08X}" if not letter.isalnum() else letter for letter in text.decode("utf-8", "replace"))
        yield f"name-{name}", good.replace(b'"tiny"', f'"{escaped}"'.encode())
        yield f"key-{name}", good.replace(b"[detect]", f'[detect]\n"{escaped}" = 1'.encode())
        yield f"class-{name}", good.replace(b'"white"', f'"{escaped}"'.encode())
        yield f"raw-class-{name}", good.replace(b"white", text)
        yield f"family-{name}", good.replace(b'"yolov8"', f'"{escaped}"'.encode())
        yield f"file-{name}", good.split(b"names")[0] + f'file = "{escaped}"'.encode()


def class_files(folder, good):
    """Cards whose class names are in a file."""
    base = good.split(b"names")[0]
    make = {
        "fifo": os.mkfifo, "folder": os.mkdir, "device": lambda path: os.symlink("/dev/zero", path), "circle": lambda path: os.symlink(path, path),
        "memory": lambda path: os.symlink("/proc/self/mem", path), "tty": lambda path: os.symlink("/dev/full", path), "empty": lambda path: open(path, "w").close(),
    }  # fmt: skip
    for name, lines in {
        "lines-1000000": b"c\n" * 1_000_000, "one-10MB": b"x" * (10 << 20), "invalid": b"a\xff\xfe\n" * 8, "utf16": "a\nb\n".encode("utf-16"), "null": b"a\0\n" * 8,
        "escapes": b"\x1b[2J\x1b]0;x\x07\n" * 8, "bidi": "a\u202eb\n".encode() * 8, "c1": "\x9b2J\n".encode() * 8,
    }.items():  # fmt: skip
        make[name] = lambda path, lines=lines: path.write_bytes(lines)

    def sparse(path):
        with open(path, "wb") as file:
            file.truncate(64 << 30)

    make["sparse"] = sparse
    for name, made in make.items():
        made(folder / f"{name}.txt")
        yield f"classes-{name}", base + f'file = "{name}.txt"'.encode()
    for name, file in {"parent": "../../../../../../etc/passwd", "absolute": "/etc/passwd", "environ": "/proc/self/environ", "missing": "missing.txt", "long": "x" * 10_000}.items():
        yield f"classes-{name}", base + f'file = "{file}"'.encode()


def number_files(folder, rng, good):
    """Cards whose extra input is in a NumPy file."""
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4, 8), }\n"
    right = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(128)
    make = {
        "fifo": os.mkfifo, "folder": os.mkdir, "device": lambda path: os.symlink("/dev/zero", path), "circle": lambda path: os.symlink(path, path),
        "outside": lambda path: os.symlink("/etc/passwd", path), "memory": lambda path: os.symlink("/proc/self/mem", path),
    }  # fmt: skip
    contents = {f"cut-{at:02}": content for at, content in enumerate(cut(right, rng, 8))}
    contents |= {f"damaged-{at:02}": content for at, content in enumerate(damaged(right, rng, 24))}
    contents |= {
        "right": right, "empty": b"", "20MB": right + bytes(20 << 20), "length": b"\x93NUMPY\x02\x00" + b"\xff" * 8,
        "shape-huge": right.replace(b"(1, 4, 8)", b"(18446744073709551615, 18446744073709551615)"),
        "shape-deep": b"\x93NUMPY\x02\x00" + (1 << 20).to_bytes(4, "little") + b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * (1 << 19),
        "nan": right[:-4] + b"\0\0\xc0\x7f",
    }  # fmt: skip
    for name, content in contents.items():
        make[name] = lambda path, content=content: path.write_bytes(content)
    for name, made in make.items():
        made(folder / f"{name}.npy")
        yield f"numbers-{name}", good + f'[extra_inputs]\nx = "{name}.npy"'.encode()
    for name, file in {"parent": "../../../../../../etc/x.npy", "absolute": "/proc/self/x.npy", "missing": "missing.npy", "long": "x" * 10_000 + ".npy", "null": "a\\u0000.npy"}.items():
        yield f"numbers-{name}", good + f'[extra_inputs]\nx = "{file}"'.encode()


def cases(folder, rng, model, picture):
    place = folder / "cards"
    place.mkdir()
    good = GOOD.encode()
    paths = []
    for kind, found in (
        ("a card", contents(rng, good)), ("a card's class names", class_files(place, good)), ("a card's numbers", number_files(place, rng, good)),
    ):  # fmt: skip
        for name, content in found:
            path = place / f"{name}.toml"
            path.write_bytes(content)
            paths.append((kind, path))
    for name, make in {
        "no-fifo": os.mkfifo, "no-folder": os.mkdir, "no-device": lambda path: os.symlink("/dev/zero", path), "no-circle": lambda path: os.symlink(path, path),
        "no-memory": lambda path: os.symlink("/proc/self/mem", path), "no-missing": lambda path: None,
    }.items():  # fmt: skip
        path = place / f"{name}.toml"
        make(path)
        paths.append(("a card", path))
    with open(place / "no-sparse.toml", "wb") as file:
        file.truncate(64 << 30)
    paths.append(("a card", place / "no-sparse.toml"))
    for kind, path in paths:
        yield Case(f"inspect: {kind}", path.stem, ["inspect", "--card", path, model], path.name, (DONE, CONFIG))
        arguments = ["detect", "--backend", "rten", "--card", path, "--model", model, picture]
        yield Case(f"detect: {kind}", path.stem, arguments, f"{path.name}|model tiny", (DONE, CONFIG, MODEL))
