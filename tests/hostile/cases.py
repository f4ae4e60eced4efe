"""A hostile input: a command line of visiond, the words that its error must contain, and the allowed exit statuses."""

from dataclasses import dataclass, field

# As `visiond --help` has them.
DONE, USAGE, CONFIG, MODEL, INPUT, OUTPUT = 0, 2, 3, 4, 5, 6

# Texts that a terminal would act on, or that hide or reorder text.
NASTY = {
    "color": "\x1b[31mred\x1b[0m", "title": "\x1b]0;owned\x07", "clear": "a\x1b[2J\x1b[H", "csi-c1": "\x9b2Ja\x9d0;b\x9c", "newline": "a\nvisiond: all is well",
    "return": "bad\rgood", "bidi": "a\u202egnp.exe\u202c\u2066b\u2069", "null": "a\0b", "delete": "a\x7f\x08b", "quote": "'\"`{}\\$(id)%s%n{0}", "long": "x" * (1 << 20),
    "empty": "", "separator": "a\u2028b\u2029c\u200f", "zero-width": "a\ufeff\u200bb",
}  # fmt: skip


def nasty():
    """The texts as bytes, and some that are not UTF-8."""
    return {**{name: text.encode() for name, text in NASTY.items()}, "invalid": b"a\xff\xfe\xc3(\x9b31m\xed\xa0\x80b"}


@dataclass
class Case:
    kind: str
    name: str
    arguments: list
    # If the command fails, standard error must contain this, or one of several.
    named: str = ""
    statuses: tuple = (DONE, CONFIG, MODEL)
    environment: dict = field(default_factory=dict)
    # Whether it can only be kept by Landlock, which not every kernel has.
    needs_landlock: bool = False

    def __str__(self):
        return f"{self.kind}/{self.name}"


def cut(content, rng, count):
    """`content`, cut off at that many places, the first bytes among them."""
    ends = {1, 4, 16, len(content) - 1, *(rng.randrange(1, len(content)) for _ in range(count - 4))}
    return [content[:end] for end in sorted(ends)]


def damaged(content, rng, count):
    """`content`, with some bytes changed, that many times."""
    copies = []
    for _ in range(count):
        copy = bytearray(content)
        for _ in range(rng.choice((1, 1, 3, 8))):
            copy[rng.randrange(len(copy))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        copies.append(bytes(copy))
    return copies
