#!/usr/bin/env python3
"""Checks that a user can find the remedy for every error.

    tests/remedies.py [--list]

Collects the texts of errors and warnings from the sources (`rust_texts` and `script_texts` say which) and passes a text that

  - carries its remedy: a clause that begins with an imperative (`; set ...`), a form such as `must be ...` or `did you mean`, or
    a value that holds one (`{remedy}`), or
  - matches a message in docs/troubleshooting.md, or
  - passes on a reason, which is a text of its own, or the error of another program or of the system, and then names what it
    happened to in the same clause (`cannot read {path}: {error}`), or
  - is listed below: it is part of a text with the remedy, or needs none.

Exit status 1 and a line for each other text. `--list` prints every text with why it passes.
"""

import re
import subprocess
import sys

from messages import DOCUMENT, FOREIGN, ROOT, messages, spaced

# Verbs that begin a remedy.
VERBS = """
    add allow ask begin build change check chmod choose clear close compare configure connect convert cool copy correct create delete
    download end export finish free generate give install keep leave let link lower make mend mount move name open pass plug
    point print publish push put quantise raise read rebuild record reinstall remove rename renew repair report restart run save see send set
    shorten sign start stop switch train try update use wait write
""".split()
# Other forms that name the expected value.
WANTED = r"did you mean|\bmust\b|\bexpected \S+|\brequires? [`-]|\b(?:not|needs|instead of) \{(?:wanted|bounds_text)\b|its inputs are \{inputs|` is \{takes"
# Values that hold a remedy or list what is possible; values that are reasons with a text of their own; values that are errors.
REMEDY_VALUE = r"remedy|frames_alone|\w+_remedy|hint|near|nearest|other_version|other_may_know|explain"
REASON_VALUE = r"reason\w*|why|cause|said|problem|refusal|words|line_\w+|first_error\w*"
ERROR_VALUE = r"error|source|\d"
REMEDY = re.compile(
    rf"(?:^|[:;,.] |[(])(?:please )?(?:{'|'.join(VERBS)})\b(?! (?:is|was|are|were|has|failed|timed))|{WANTED}|\{{(?:[^{{}}]*\b)?(?:{REMEDY_VALUE})\b[^{{}}]*\}}",
    re.I,
)
PASSED_ON = re.compile(
    rf"(?:: |; |[(])\{{(?:\w+\.)?(?:{REASON_VALUE})\b[^{{}}]*\}}"
    rf"|(?:^|[:;] )[^:;]*\{{[^{{}}]+\}}[^:;]*(?:: |[(])\{{(?:\w+\.)?(?:{ERROR_VALUE})\b[^{{}}]*\}}"
)

# Reasons that only occur in a text that begins like this and has the remedy. (File, beginning of the reason, of the text.)
PUT_INTO = [
    ("daemon/bundle/src/index.rs", "", "{path} is no index of bundles: {reason}; publish"),
    ("daemon/bundle/src/key_list.rs", "", "{path} is no valid list of keys: {reason}; correct"),
    ("daemon/fleet/src/desired.rs", "", "{key} is not a record of visiond: {reason}; write"),
    ("daemon/bundle/src/manifest.rs", "", "the manifest of {path} is invalid: {reason}; make"),
    ("daemon/bundle/src/read.rs", "", "{path} is damaged: {reason}; copy it again"),
    ("daemon/capture/src/rtsp/datagram_ports.rs", "no even port is free", "cannot open UDP ports: {error}"),
    ("daemon/capture/src/rtsp/session.rs", "its name has no address", "cannot connect: {error}"),
    ("daemon/capture/src/onvif/xml.rs", "more than ", "its ONVIF service returned invalid XML"),
    ("daemon/capture/src/shared_memory.rs", "a ", "the socket is not that of a shmsink"),
    ("daemon/capture/src/shared_memory.rs", "an area of", "the socket is not that of a shmsink"),
    ("daemon/capture/src/shared_memory.rs", "one more area", "the socket is not that of a shmsink"),
    ("daemon/web/src/shapes.rs", "it belongs to another user", "cannot replace {"),
    ("daemon/publish/src/spool/files.rs", "it is not a file", "cannot read {path}: {reason}; renamed it"),
    ("engine/src/heads/", "", "head `{family}` reads"),
    ("engine/src/ultralytics", "", "its Ultralytics metadata is damaged"),
    ("engine/src/onnx/file.rs", "a ", "{path}: {direction} `{name}` is {found}"),
    ("engine/src/onnx/file.rs", "an optional value", "{path}: {direction} `{name}` is {found}"),
    ("engine/src/onnx/file.rs", "without a declared type", "{path}: {direction} `{name}` is {found}"),
    ("engine/src/onnx/onnxruntime/program.rs", "a sequence or map", "output `{name}` is {found}"),
    ("engine/src/onnx/onnxruntime/program.rs", "a tensor of ", "output `{name}` is {found}"),
    ("engine/src/tensorrt/plan/file.rs", "at least", "{path} is truncated"),
    ("engine/src/tensorrt/plugins.rs", "", "{what} is missing; {remedy}"),
    ("engine/builder/src/options.rs", "", "`{text}`: {problem}: write an input"),
    ("engine/src/compare/tensors.rs", "the input's size", "cannot compare models with different inputs"),
    ("engine/src/onnx/onnxruntime/library.rs", "it ", "cannot use {0} as ONNX Runtime's library"),
    ("engine/src/onnx/onnxruntime/program.rs", "a tensor's name", "{0} cannot load {1}"),
    ("engine/src/onnx/onnxruntime/program.rs", "an input has more", "{0} cannot run the model"),
    ("engine/src/onnx/onnxruntime/values.rs", "", "{0} cannot run the model"),
    ("engine/src/onnx/rten.rs", "`{info.name}` is not", "{0} cannot load {1}"),
    ("engine/src/tensorrt/library.rs", "it is a library", "cannot use {0} as TensorRT's library"),
    ("kernels/src/cuda/driver.rs", "{LIBRARY} has no", "the NVIDIA driver is too old"),
    ("kernels/src/nvtx.rs", "the tool does not attach", "cannot record ranges for Nsight Systems"),
]
# Texts that need no remedy, by file and beginning.
NO_REMEDY = {
    "it only puts together texts that are judged themselves": [
        ("daemon/cli/src/capture.rs", "--camera is {error}"),
        ("daemon/config/src/validate.rs", "another sink {message}"),
        ("daemon/nats/src/options.rs", "`login` or `credentials`"),
        ("daemon/nats/src/options.rs", "NATS_USER and NATS_PASSWORD"),
        ("daemon/system/src/thermal.rs", "the Jetson is throttled"),
        ("engine/src/backend/error.rs", "{0} is not an ONNX model: it is {1}"),
        ("engine/src/detector/error.rs", "the model has no class `{0}`{1}"),
        ("engine/src/onnx/load.rs", "{error}; using rten instead"),
        ("tests/setup", "missing: "),
    ],
    "it stands where another program gives no reason": [
        ("daemon/capture/src/ffprobe.rs", "ffprobe gave no reason"),
        ("daemon/system/src/logging.rs", "no message"),
        ("engine/src/tensorrt/error.rs", "no reason given"),
        ("engine/src/tensorrt/library.rs", "{parser.path.display()} gives no reason"),
        ("engine/src/tensorrt/program.rs", "no reason given"),
    ],
    "it is counted, or logged for developers only": [
        ("daemon/capture/src/v4l2/extract.rs", "the driver marks it as damaged"),
        ("kernels/src/jpeg/decode.rs", "its picture has {0}x{1} pixels"),
        ("daemon/capture/src/v4l2/extract.rs", "it is empty"),
        ("daemon/capture/src/v4l2/extract.rs", "it has {found} bytes of {needed}"),
        ("daemon/publish/src/spool/lock.rs", "another sink of this process holds it"),
        # Ends the reading of an array; the entry's own error is printed.
        ("daemon/cli/src/verify/reference.rs", "an entry is wrong"),
    ],
    "it is the source of the error that is printed": [("ground/src/gpu_lost.rs", "the process has lost the GPU")],
    "it is a text of the loader that is recognised": [
        ("ground/src/loader_message.rs", "cannot open shared object file"),
        ("ground/src/loader_message.rs", "file too short"),
    ],
    "it is the outcome that the user asked for": [
        ("engine/builder/src/calibration.rs", "the build was cancelled"),
        ("engine/builder/src/error.rs", "the build was cancelled"),
    ],
    "it is a result in a report that docs/selftest.md explains": [("daemon/cli/src/selftest", "")],
    "it cannot happen unless a part of visiond calls another wrongly": [
        ("daemon/annotate/src/rgb_converter.rs", "an image of"),
        ("daemon/capture/src/image_file.rs", "its size does not fit its bytes"),
        ("daemon/capture/src/image_file.rs", "the image's buffer is gone"),
        ("daemon/capture/src/v4l2/extract.rs", "the driver has no buffers"),
        ("daemon/capture/src/v4l2/io_method.rs", "there is no I/O method for it"),
        ("daemon/cli/src/bench/", "the thread that writes frames has ended"),
        ("daemon/cli/src/bench/", "no free buffer"),
        ("daemon/cli/src/man.rs", "cannot make the manual page"),
        ("daemon/cli/src/output.rs", "cannot write JSON"),
        ("daemon/pipeline/src/supervisor.rs", "model {spec.model} is not loaded"),
        ("daemon/pipeline/src/supervisor.rs", "camera {camera.name} does not run"),
        ("daemon/system/src/broker_tls.rs", "cannot set up TLS"),
        ("daemon/publish/src/mqtt/codec.rs", "there is no such quality of service"),
        ("daemon/publish/src/mqtt/connect.rs", "is not a broker's URL"),
        ("daemon/nats/src/connect.rs", "is not a broker's URL"),
        ("daemon/nats/src/connect.rs", "cannot write CONNECT as JSON"),
        ("daemon/nats/src/client.rs", "there is no connection"),
        ("daemon/nats/src/client.rs", "it was closed"),
        ("daemon/nats/src/client.rs", "the server says"),
        ("daemon/publish/src/nats.rs", "there is no connection"),
        ("daemon/system/src/child_process.rs", "no pipe for standard"),
        ("daemon/system/src/child_process.rs", "the thread that starts programs has ended"),
        ("daemon/web/src/api.rs", "cannot show the configuration in force"),
        ("daemon/web/src/api.rs", "cannot write the trace"),
        ("engine/src/detector", "a run takes 1 to {most} frames"),
        ("engine/src/detector", "an output is not of its shape"),
        ("engine/src/detector", "cannot read raw outputs"),
        ("engine/src/detector", "the backend's output is not of its shape"),
        ("engine/src/detector", "the filter has no such slot"),
        ("engine/src/detector", "the last run had no frame there"),
        ("engine/src/detector", "the model's input has no such slot"),
        ("engine/src/detector", "the run is not in flight"),
        ("engine/src/tensorrt/error.rs", "the engine has no input or output"),
        ("kernels/src/filter/", ""),
        ("kernels/src/jpeg/", "it needs {needed} bytes"),
        ("kernels/src/jpeg/", "{width}x{height} is too large"),
        ("kernels/src/jpeg/", "the library wrote a file without the headers"),
        ("kernels/src/jpeg/", "the picture needs {needed} bytes"),
        ("kernels/src/preprocess/cuda/preprocessor.rs", "the preprocessor was made for"),
        ("kernels/src/tensor.rs", "a {dtype} tensor of shape"),
        ("tests/licences/src/crates.rs", "there is no package"),
    ],
}

TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
  | (?P<string>  [bc]?"(?:[^"\\]|\\.)*" | [bc]?r(?P<hashes>\#*)".*?"(?P=hashes) )
  | (?P<char>    b?'(?:[^'\\]|\\(?:u\{[^}]*\}|.[^']*))' | '\w+ )
  | (?P<word>    \w+(?:\s*::\s*\w+)*!? )
  | (?P<sign>    -> | => | \S )
    """,
    re.S | re.X,
)
# Calls that make an error of their arguments, that forward their arguments, and functions whose value is a part of an error.
MAKES = re.compile(
    r"#error|log::(error|warn)!|eprintln!|\w*(Error|Problem|Fault)(::\w+)?|.*::\w*(Error|Problem)(::\w+)?|Err|Poll::Ready"
    r"|\.(map_err|ok_or|ok_or_else|error|warning|wrong|wrong_at|absence|syntax)"
)
PASSES = re.compile(r"(std::)?format!|String::from|Some|Box::new|\.(map|map_or|map_or_else|unwrap_or|unwrap_or_else|and_then)|")
EXPLAINS = re.compile(r"explain\w*|un(fit|asked|reachable|readable)|refused|broken|fault|lost|no_\w+|read_back|describe_io_error|reason|sentence")
# Calls that make no error: the argument of `refused` is the attempt.
QUIET = re.compile(r"log::(info|debug|trace)!|println!|#.*|\.?(self\.)?refused")


def words(text):
    return len(re.findall(r"[A-Za-z]{2,}", text))


class Text:
    """A text of the sources, where a value is its expression in braces, and in `fixed` is `…`."""

    def __init__(self, file, line, text):
        self.file, self.line, self.text = file, line, spaced(text).strip()
        self.fixed = re.sub(r"(?<!\{)\{[^{}]*\}", "…", self.text).replace("{{", "{").replace("}}", "}")
        # The part that a message of the document must contain: up to the error that it passes on; values in it may be anything.
        own = re.match(r"(.*\w.*?)(: …|$)", self.fixed)
        own = re.sub("…(?=.*[a-z]{2})", ".+?", re.escape(own[1])) if own and words(own[1]) > 1 else "(?!)"
        self.own = re.compile(rf"(?:^|[:;,…] ){own}(?=[;,.]|$|:? […(]|: (?:{FOREIGN['the system']}))")

    def __str__(self):
        return f"{self.file}:{self.line}"


class Message:
    """A message of docs/troubleshooting.md, in which `…` matches anything."""

    def __init__(self, line, message):
        self.line, self.message = line, spaced(message)
        parts = self.message.strip(" …:;,.").split("…")
        self.pattern = re.compile(".+?".join(map(re.escape, parts)) if words(self.message) > 1 else "(?!)")

    def shows(self, text):
        """Whether the message is a part of the text, or the text a part of the message, from the beginning of a clause on."""
        return self.pattern.search(text.fixed) or text.own.search(self.message)


def tokens(source):
    """The tokens of a Rust source without comments, as (kind, text, line)."""
    line, at = 1, 0
    found = []
    for match in TOKEN.finditer(source):
        line += source.count("\n", at, match.start())
        at = match.start()
        kind = match.lastgroup if match.lastgroup != "hashes" else "string"
        if kind != "comment":
            found.append((kind, re.sub(r"\s", "", match[0]) if kind == "word" else match[0], line))
    return found


def closers(found):
    """For each opening bracket the index of the closing one."""
    pairs, stack = {}, []
    for index, (kind, text, _) in enumerate(found):
        if kind == "sign" and text in "([{":
            stack.append(index)
        elif kind == "sign" and text in ")]}" and stack:
            pairs[stack.pop()] = index
    return pairs


def literal(token):
    """The content of a string literal, with its values in braces."""
    raw = re.fullmatch(r'[bc]?r(#*)"(.*)"\1', token, re.S)
    if raw:
        return raw[2]
    text = re.sub(r"\\\n\s*", "", token[token.index('"') + 1 : -1])
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1]), text)


def joined(found):
    return "".join(text for _, text, _ in found)


def arguments(found, begin, end):
    """The arguments between two brackets, each as its tokens."""
    parts, depth = [[]], 0
    for token in found[begin + 1 : end]:
        depth += (token[1] in ("(", "[", "{")) - (token[1] in (")", "]", "}")) if token[0] == "sign" else 0
        if token[1] == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def filled(text, values):
    """The text with each `{}` named after its argument."""
    named = dict(value.split("=", 1) for value in values if re.match(r"\w+=[^=]", value))
    values = iter(values)

    def value(match):
        expression = next(values, "") if match[1] == "" else named.get(match[1], match[1])
        return "{" + re.sub(r"[{}]", "", expression) + "}"

    return re.sub(r"(?<!\{)\{(\w*)(?::[^{}]*)?\}", value, text)


def callee(found, index):
    """The name before an opening bracket: `format!`, `.map_err`, `SourceError::permanent`, `#error`, or nothing."""
    before = found[index - 1] if index else ("", "", 0)
    if before[0] != "word" or before[1] in ("match", "if", "in", "else", "return"):
        return ""
    sign = found[index - 2][1] if index > 1 else ""
    if found[index][1] == "{" and sign in ("->", "match", "if", "for", "in", "impl", "mod", "trait", "enum", "struct", "else", "&", "."):
        return ""
    if sign == "[" and index > 2 and found[index - 3][1] == "#":
        return "#" + before[1]
    return ("." if sign == "." else "") + before[1]


def end_of(found, pairs, index, signs):
    """The index of the next of these signs outside brackets, unless it opens one."""
    while index < len(found) and found[index][1] not in signs:
        index = pairs.get(index, index) + 1
    return index


def rust_texts(name, source):
    """Strings that become errors or warnings.

    They are given to what makes one (MAKES), directly or through what passes them on (PASSES), stand in a function or closure that
    returns one, or are given to it, are held in a variable called `message` or the like, or begin with `cannot`. A field of an error
    counts if it is a `reason` or the like. Strings that begin with punctuation only go on another text."""
    found = tokens(source)
    pairs = closers(found)
    makers, regions, skipped = set(), [], []
    for index, (kind, text, _) in enumerate(found):
        following = lambda offset: found[index + offset][1] if index + offset < len(found) else ""
        if kind == "word" and text == "cfg" and following(2) == "test" and found[index - 1][1] == "[":
            end = end_of(found, pairs, pairs[index + 1] + 2, "{;")
            skipped.append((index, pairs.get(end, end)))
        elif kind == "word" and text == "fn":
            begin = end_of(found, pairs, index, "{;")
            returns = joined(found[index:begin]).rpartition("->")[2].partition("where")[0]
            if re.fullmatch(r"\w*(Error|Problem)", returns):
                makers.add(following(1))
                regions.append((begin, pairs.get(begin, begin)))
            elif re.fullmatch(r"(Option<)?(String|&'staticstr)>?", returns) and EXPLAINS.fullmatch(following(1)):
                regions.append((begin, pairs.get(begin, begin)))
        elif kind == "word" and text == "let":
            end = end_of(found, pairs, index, ";")
            if following(3) == "|" and re.search(r"(Error|Problem)\b", joined(found[index:end])):
                makers |= {following(1)} if "refused(" not in joined(found[index:end]) else set()
                regions.append((index, end))
            elif following(1) in ("message", "why", "problem", "sentence"):
                regions.append((index, end))
            elif following(1) in ("remedy", "hint", "nearest"):
                skipped.append((index, end))
    stack = []
    for index, (kind, text, line) in enumerate(found):
        if kind == "sign" and text in "([{":
            stack.append(index)
        elif kind == "sign" and text in ")]}":
            stack = stack[:-1]
        if kind != "string" or any(begin <= index <= end for begin, end in skipped):
            continue
        content = literal(text)
        frames = [(bracket, callee(found, bracket)) for bracket in reversed(stack)]
        if frames and (frames[0][1].endswith("!") or frames[0][1] == "#error"):
            if found[index - 1][1] != "(":
                continue
            content = filled(content, [joined(part) for part in arguments(found, frames[0][0], pairs[frames[0][0]])[1:]])
        fixed = re.sub(r"\{[^{}]*\}", "", content)
        if re.match(r"\s*[:;,(]", content) or words(fixed) < 2 or not re.search(r"\w \w|\w\W*$", fixed) or " " not in fixed.strip():
            continue
        region = max((begin for begin, end in regions if begin <= index <= end), default=-1)
        taken = content.startswith("cannot ")
        for bracket, called in frames:
            if QUIET.fullmatch(called) and called != "#error":
                taken = False
                break
            if bracket <= region:
                taken = True
                break
            if called and (MAKES.fullmatch(called) or called in makers):
                field = next(part for part in arguments(found, bracket, index + 1)[-1:])
                taken = found[bracket][1] == "(" or bool(re.match(r"(reason|problem|why|message):", joined(field))) or taken
                break
            if not PASSES.fullmatch(called):
                break
        if taken:
            yield Text(name, line, content)


def script_texts(name, source):
    """The messages of scripts before they end: `die "..."`, and on standard error what begins with the program's name."""
    prefix = re.search(r"\bdie\(\) .*?([\w-]+: )[$%]", source)
    value = lambda found: "{" + re.sub(r"\W+", "_", found[0][1:]).strip("_") + "}"
    for number, line in enumerate(source.splitlines(), 1):
        # A command in the string may have strings of its own.
        line = re.sub(r"\$\((?:[^()]|\([^()]*\))*\)", value, line)
        for match in re.finditer(r'\b(die|say|echo) "((?:[^"\\]|\\.)*)"( >&2)?', line):
            text = re.sub(r"\$\{[^{}]*\}|\$\w+|\$[*@]", value, re.sub(r"\\(.)", r"\1", match[2]))
            if "() {" not in line and (match[1] == "die" or match[1] == "echo" and match[3] or re.match(r"[\w-]+: ", text)):
                yield Text(name, number, (prefix[1] if match[1] == "die" and prefix else "") + text)


def all_texts():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in listed:
        if not (ROOT / name).is_file():
            continue
        if name.endswith(".rs") and not re.search(r"(^|/)(tests?|testing|examples|\w+_tests|v4l2-sys)(/|\.rs$)", name.removeprefix("tests/licences")):
            yield from rust_texts(name, (ROOT / name).read_text())
        elif name in ("demo", "package", "test", "check", "tests/setup") or name.startswith("systemd/deb/"):
            yield from script_texts(name, (ROOT / name).read_text())


def why_passed(text, rows):
    """The reason why the text is accepted, or None."""
    if REMEDY.search(text.text):
        return "remedy"
    for row in rows:
        if row.shows(text):
            return f"row {row.line}"
    if PASSED_ON.search(text.text):
        return "passed on"
    return None


def main():
    rows = [Message(number, message) for number, message in messages()]
    texts = list(all_texts())
    passed = {text: why_passed(text, rows) for text in texts}
    lists = {entry: f"put into `{entry[2]}...`" for entry in PUT_INTO} | {entry: why for why, entries in NO_REMEDY.items() for entry in entries}
    unused = set(lists)
    for text in (text for text in texts if passed[text] is None):
        for entry in (entry for entry in lists if text.file.startswith(entry[0]) and text.text.startswith(entry[1])):
            unused.discard(entry)
            passed[text] = lists[entry]
    failures = [f"{text}: `{text.text}`: add a remedy to the text, or a row to {DOCUMENT.relative_to(ROOT)}" for text in texts if passed[text] is None]
    failures += [f"tests/remedies.py: no text needs the entry {entry}: remove it" for entry in sorted(unused)]
    for file, _, whole in PUT_INTO:
        if not any(text.text.startswith(whole) and (passed[text] or "").startswith(("remedy", "row")) for text in texts):
            failures.append(f"tests/remedies.py: no text with a remedy begins with `{whole}`, into which those of {file} are put")
    for line in [f"{text}: {passed[text] or 'FAILS'}: {text.text}" for text in texts] if "--list" in sys.argv else failures:
        print(line)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
