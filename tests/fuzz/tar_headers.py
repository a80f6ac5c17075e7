"""Compare how we read tar archives with Go's archive/tar, which engines unpack layers by.

    python tests/fuzz/tar_headers.py [--count N] [--seed S] [--oracle PROGRAM]

Each archive follows from the seed and its number. Where our reader raises `Unreadable`, anything
goes. Otherwise every entry has the same type, name, target, mode, owner and data as in Go. An
archive that breaks this ends the run with exit code 1 and is written to the working directory.
The oracle is `tar_oracle.go`, see `go_oracle.py`.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from go_oracle import COMPILERS, compile_oracle  # noqa: E402

from buildmatrix.facts.trees.archive import BytesSource, Slice  # noqa: E402
from buildmatrix.facts.trees.base import Unreadable  # noqa: E402
from buildmatrix.facts.trees.decompression import ENDLESS, ForwardSource  # noqa: E402
from buildmatrix.facts.trees.tar import members  # noqa: E402

SOURCE = Path(__file__).with_name("tar_oracle.go")

#: Archives of a run without `--count`: about 8 s of one processor.
COUNT = 15_000
#: Archives that Go reads at once.
BATCH = 5000
#: Archives of which every entry has to be compared, in per cent, or the run proves little.
FEWEST_COMPARED = 35

BLOCK = 512
NAMES = [
    b"a", b"b/", b"b/c", b".wh.a", b"b/.wh..wh..opq", b"", b"/x", b"../y", b"n" * 100, b"\xff\xfe",
    b"d" * 99 + b"/", b"a\0b", b"caf\xc3\xa9", b"pax_global_header", b"./", b"q" * 160,
]  # fmt: skip
KINDS = [b"0"] * 14 + [bytes([kind]) for kind in b"\0\0\x001122345567SDVNXAZ \xff"]
META = [b"x"] * 8 + [b"g"] * 2 + [b"L"] * 3 + [b"K"] * 2
KEYS = [
    b"path", b"path", b"linkpath", b"size", b"size", b"uid", b"gid", b"uname", b"gname", b"atime",
    b"mtime", b"ctime", b"comment", b"SCHILY.xattr.user.a", b"SCHILY.xattr.trusted.overlay.opaque",
    b"GNU.sparse.major", b"GNU.sparse.minor", b"GNU.sparse.name", b"GNU.sparse.size",
    b"GNU.sparse.realsize", b"GNU.sparse.map", b"GNU.sparse.numblocks", b"GNU.sparse.offset",
    b"GNU.sparse.numbytes", b"", b"pa\0th", b"LIBARCHIVE.xattr.user.a", b"hdrcharset",
]  # fmt: skip
NUMBERS = [
    b"", b"0", b"1", b"5", b"512", b"1024", b"-1", b"+7", b"007", b"1_0", b"0x10", b" 3", b"3 ",
    b"1e3", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"3.5", b"3.",
    b".5", b"-1.25", b"+1.x", b"1.2.3", "\u0663".encode(), b"0000000000000000000000005", b"1,2",
]  # fmt: skip
PREFIXES = [b"", b"", b"p", b"p/q", b"p" * 155, b"p\0q", b"\xffp", b"00000000001 00000000002 "]
MAGICS = [b"ustar\x0000"] * 6 + [b"ustar  \0"] * 3
MAGICS += [bytes(8), b"ustar\0  ", b"ustar 00", b"USTAR\x0000"]


def make(rng: random.Random) -> bytes:
    """An archive in which some fields lie."""
    #: How seldom something is odd: half of all archives have next to nothing odd.
    odd = rng.choice((400, 100, 20))
    parts = []
    for _ in range(rng.randrange(1, 5)):
        while rng.randrange(100) < 45:
            parts.append(meta(rng, odd))
        parts.append(entry(rng, odd))
        if not rng.randrange(odd):
            parts.append(rng.choice((bytes(BLOCK), rng.randbytes(BLOCK), bytes(100))))
    parts.append(b"" if not rng.randrange(odd) else bytes(rng.choice((1, 2, 2, 2, 2, 4)) * BLOCK))
    if not rng.randrange(20):
        parts.append(rng.choice((b"x", rng.randbytes(BLOCK), header(rng, odd, b"z", b"0", 0))))
    archive = b"".join(parts)
    return archive[: rng.randrange(len(archive) + 1)] if not rng.randrange(odd) else archive


def entry(rng: random.Random, odd: int) -> bytes:
    kind = rng.choice(KINDS[:20] if rng.randrange(odd) else KINDS)
    data = rng.choice((b"", b"data", rng.randbytes(rng.randrange(1, 1100)), bytes(BLOCK)))
    if not rng.randrange(8):
        data = sparse_map(rng) + data
    if kind not in b"0\x007S" and rng.randrange(odd):
        data = b""
    block = header(rng, odd, rng.choice(NAMES), kind, len(data))
    return block + data.ljust(len(data) + -len(data) % BLOCK, b"\0")


def sparse_map(rng: random.Random) -> bytes:
    return rng.choice((b"1\n0\n4\n", b"0\n", b"2\n0\n1\n5\n3\n", b"9\n", b"x\n")).ljust(
        BLOCK, b"\0"
    )


def meta(rng: random.Random, odd: int) -> bytes:
    """A header of the next entry, or of all of them."""
    kind = rng.choice(META)
    if kind in b"LK":
        data = rng.choice(NAMES) + b"\0" * rng.randrange(2)
    elif kind == b"x" and not rng.randrange(6):
        data = sparse_records(rng, odd)
    else:
        data = b"".join(record(rng, odd) for _ in range(rng.randrange(4)))
    name = b"pax_global_header" if kind == b"g" and rng.randrange(8) else rng.choice(NAMES)
    block = header(rng, odd, name, kind, len(data))
    return block + data.ljust(len(data) + -len(data) % BLOCK, b"\0")


def record(rng: random.Random, odd: int, key: bytes = b"", value: bytes | None = None) -> bytes:
    key = key or rng.choice(KEYS if not rng.randrange(odd) else KEYS[:14])
    if value is None:
        texts = key.endswith((b"path", b"name", b"comment"))
        honest = NAMES if texts else NUMBERS[:6]
        value = rng.choice(honest if rng.randrange(odd) else [*NAMES, *NUMBERS])
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + 1
    while len(body) + len(str(length)) != length:
        length = len(body) + len(str(length))
    if not rng.randrange(odd):
        length += rng.choice((-1, 1, 10, -length, 1 << 40))
        body = rng.choice((body, body[:-1], body.replace(b"=", b""), body.strip()))
    digits = str(length).encode()
    if not rng.randrange(odd):
        digits = rng.choice((b"+", b"0", b" ", b"-")) + digits
    return digits + body


def sparse_records(rng: random.Random, odd: int) -> bytes:
    """A sparse file of one of the three formats of pax, or a part of one."""
    texts = rng.choice((
        [(b"major", b"1"), (b"minor", b"0"), (b"name", b"s"), (b"realsize", b"4")],
        [(b"map", b"0,4"), (b"numblocks", b"1"), (b"name", b"s"), (b"size", b"4")],
        [(b"offset", b"0"), (b"numbytes", b"4"), (b"numblocks", b"1"), (b"size", b"4")],
        [(b"major", b"0"), (b"minor", b"1"), (b"map", b""), (b"numblocks", b"0"), (b"size", b"0")],
    ))  # fmt: skip
    kept = [pair for pair in texts if rng.randrange(8)]
    return b"".join(record(rng, odd, b"GNU.sparse." + key, value) for key, value in kept)


def number(rng: random.Random, odd: int, value: int, width: int) -> bytes:
    """A field with a number."""
    if rng.randrange(odd):
        return b"%0*o\0" % (width - 1, value)
    field = rng.choice((
        b"%*o " % (width - 1, value), b"%0*o" % (width, value), b" %o \0" % value, bytes(width),
        b"\x80" + value.to_bytes(width - 1, "big"), b"\xff" * width, b"\xff" * (width - 1) + b"\0",
        b"\0%0*o" % (width - 1, value), b"%o\0junk" % value, b"0o17", b"1_0", b"+7", b"-1", b"8",
        b"7" * width, b"\x80\x80".ljust(width, b"\0"), b"\x90".ljust(width, b"\1"), b"\t1", b"1 2",
        rng.randbytes(width),
    ))  # fmt: skip
    return field[:width].ljust(width, rng.choice((b"\0", b" ")))


def header(rng: random.Random, odd: int, name: bytes, kind: bytes, size: int) -> bytes:
    """A header block; its checksum is right for the most part."""
    if not rng.randrange(odd):
        size = rng.choice((0, 1, 511, 512, 513, size + 512, max(0, size - 512), (1 << 33) - 1))
    magic, prefix = rng.choice(MAGICS), b""
    if not rng.randrange(4):
        prefix = rng.choice(PREFIXES)
    tail = bytes(12)
    if magic == b"ustar\x0000" and not rng.randrange(8):
        tail = bytes(8) + b"tar\0"
        prefix = prefix[:131].ljust(131, b"\0") + number(rng, odd, 1, 12) + number(rng, odd, 2, 12)
    elif magic == b"ustar  \0" and not rng.randrange(4):
        prefix = number(rng, odd, 1, 12) + number(rng, odd, 2, 12) + bytes(17) + b"0" * 50
    block = bytearray(
        struct.pack(
            "100s8s8s8s12s12s8sc100s8s32s32s8s8s155s12s",
            name,
            number(rng, odd, rng.choice((0o644, 0o4755, 0o100644, 0o40755)), 8),
            number(rng, odd, rng.choice((0, 1000)), 8),
            number(rng, odd, 0, 8),
            number(rng, odd, size, 12),
            number(rng, odd, 1_700_000_000, 12),
            b" " * 8,
            kind,
            rng.choice(NAMES),
            magic,
            rng.choice((b"root", b"\xff", b"")),
            b"root",
            number(rng, odd, 0, 8),
            number(rng, odd, 0, 8),
            prefix,
            tail,
        )
    )
    total = sum(block)
    if not rng.randrange(odd):
        signed = total - 256 * sum(byte > 127 for byte in block)
        total = rng.choice((signed, signed, total + 1, 0))
    block[148:156] = b"%06o\0 " % total if rng.randrange(odd) else number(rng, 1, total, 8)
    return bytes(block)


def forward(data: bytes, step: int) -> Slice:
    return Slice(
        ForwardSource(data[at : at + step] for at in range(0, len(data), step)), 0, ENDLESS
    )


KIND_LETTERS = {"file": "0", "hardlink": "1", "symlink": "2", "folder": "5"}
#: Of a line of Go: devices are one kind for us, and a sparse file is not read.
_DEVICE = re.compile(r"^[346] ", re.MULTILINE)
_UNREAD = re.compile(r" \S+ \S+$")


def ours(archive: Slice) -> str:
    """The lines of `main.go`, as our reader sees the archive; "?" for data that is not read."""
    lines = []
    for member in members(archive):
        attributes = member.attributes
        assert attributes is not None
        content = "0 0"
        if member.data is not None:
            data = member.data.read(0, member.data.size)
            content = f"{len(data)} {zlib.crc32(data):x}"
        elif member.kind == "file":
            content = "?"
        lines.append(
            f"{KIND_LETTERS.get(member.kind, '3')} {attributes.mode:o} {attributes.uid} "
            f"{attributes.gid} {_hex(member.name)} {_hex(member.target)} {content}\n"
        )
    return "".join([*lines, "end\n"])


def _hex(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").hex()


def is_same(mine: str, theirs: str) -> bool:
    """Whether both saw the same. Go ends where the map of a sparse file lies; we do not read it."""
    left, right = mine.splitlines(), theirs.splitlines()
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if one.endswith("?"):
            if other == "error":
                return True
            left[number], right[number] = one[:-1], _UNREAD.sub(" ", other)
    return left == right


def batches(count: int, seed: int) -> Iterator[list[tuple[int, bytes]]]:
    for start in range(0, count, BATCH):
        numbers = range(start, min(count, start + BATCH))
        yield [(number, make(random.Random(f"{seed} {number}"))) for number in numbers]


def compare(oracle: Path, count: int, seed: int, report: Callable[[str], None]) -> bool:
    """Whether all archives of a seed are read alike."""
    outcomes: Counter[str] = Counter()
    for batch in batches(count, seed):
        sent = b"".join(struct.pack(">I", len(data)) + data for _, data in batch)
        shown = subprocess.run([oracle], input=sent, stdout=subprocess.PIPE, check=True).stdout
        answers = re.findall(r"(?:.+\n)*?(?:end|error)\n", _DEVICE.sub("3 ", shown.decode()))
        for (number, data), theirs in zip(batch, answers, strict=True):
            whole = Slice(BytesSource(data), 0, len(data))
            try:
                mine = ours(whole if number % 2 else forward(data, 700))
            except Unreadable as error:
                is_known = theirs.endswith("error\n")
                why = re.sub(r".*, at byte \d+: |\d+|'.*'", "", str(error))
                outcomes["both refuse" if is_known else f"we alone refuse: {why}"] += 1
                continue
            outcomes["sparse" if "?" in mine else "compared"] += 1
            if not is_same(mine, theirs):
                place = Path(f"tar-crash-{seed}-{number}.tar")
                place.write_bytes(data)
                report(f"fuzz tar: {place} is read otherwise\nours:\n{mine}\nGo:\n{theirs}")
                return False
    compared = outcomes["compared"] * 100 // max(1, count)
    report(
        f"fuzz tar: {count} archives of seed {seed}, {compared} % compared in full, none differs"
    )
    for outcome, times in outcomes.most_common():
        report(f"  {times:8d} {outcome}")
    return compared >= FEWEST_COMPARED


def main() -> int:
    """The exit code: 1 for a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--oracle", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        oracle = options.oracle or compile_oracle(SOURCE, Path(folder))
        if oracle is None:
            print(f"fuzz tar: not run: install {COMPILERS}", file=sys.stderr)
            return 5 if os.environ.get("CI") else 0
        same = compare(oracle, options.count, options.seed, lambda text: print(text, flush=True))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
