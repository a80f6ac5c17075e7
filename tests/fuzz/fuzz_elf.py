"""Coverage-guided fuzzing of the readers in `elf`, for a bounded time.

    python tests/fuzz/fuzz_elf.py [SECONDS] [CORPUS_FOLDER]

Needs atheris (dependency group `fuzz`). Starts from the cases in tests/unit/elf/cases and from
small files of every format; an input that breaks a promise is written to the working directory as
`crash-*`. Make it smaller, and put it with the cases: tests/unit/elf replays them.

The promises: no exception but `Malformed`, no read outside what pread takes, and no more bytes read
than a small multiple of the file, so that time and memory stay bounded.
"""

from __future__ import annotations

import lzma
import struct
import sys
import tempfile
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "unit" / "elf")]

with atheris.instrument_imports(include=["buildmatrix.elf"]):
    from elf_images import NOTE, Image, Part, bundle, compressed_bundle, fat_binary, fat_entry
    from elf_promises import keeps_promises

#: Bytes of an input: room for every table, and fast.
LONGEST = 1 << 14


def seeds() -> list[bytes]:
    """Small files of every format."""
    fat = fat_binary(fat_entry(2, 80), fat_entry(1, 90))
    hip = bundle({"hipv4-amdgcn-amd-amdhsa--gfx942": b"x" * 100})[:4200]
    shader = struct.pack("<9I", 0x07230203, 0x10000, 0, 9, 0, 2 << 16 | 17, 1, 3 << 16 | 14, 0)
    dlopen = b'[{"soname":["libx.so.1"],"priority":"required"}]\0'.ljust(52, b"\0")
    note = struct.pack("<III", 4, len(dlopen), 0x407C0C0A) + b"FDO\0" + dlopen
    library = Image(
        needed=["libcudart.so.12"],
        strings={14: "liba.so", 29: "$ORIGIN"},
        parts=[
            Part(".rodata", b"\0libcuda.so.1\0" + fat + shader),
            Part(".nv_fatbin", fat),
            Part(".note.dlopen", note, NOTE),
            Part(
                ".gnu_debugdata",
                lzma.compress(Image(parts=[Part(".symtab", bytes(48), 2)]).build()),
            ),
        ],
    )
    member = library.build()
    archive = b"!<arch>\n" + b"a.o/".ljust(48) + b"%-10d`\n" % len(member) + member
    table = b"\x81\xaagfx_arches\x91\xa6gfx942"
    return [
        member,
        Image(bits=32, little_endian=False, needed=["libc.so.6"]).build(),
        Image(parts=[Part(".hip_fatbin", hip)]).build(),
        Image(machine=190, flags=90).build(),
        archive,
        fat,
        hip,
        compressed_bundle(2, 1, b"\x28\xb5\x2f\xfd\x00\x58\x09\x00\x00a", 64),
        shader,
        b"KPAK" + struct.pack("<IQ", 1, 16) + table,
        b"BC\xc0\xde" + bytes(64),
        b"\xde\xc0\x17\x0b" + struct.pack("<IIII", 0, 20, 64, 7) + b"BC\xc0\xde" + bytes(60),
        b".version 8.0\n.target sm_90a\n",
        b"\x10\xff\x10\xad" + struct.pack("<IQQQ", 2, 200, 32, 2) + bytes(200),
    ]


def main() -> None:
    """Fuzz; the exit code is not zero when a promise was broken."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder)
        corpus.mkdir(exist_ok=True)
        for number, seed in enumerate(seeds()):
            (corpus / f"seed-{number}").write_bytes(seed[:LONGEST])
        for case in (ROOT / "tests" / "unit" / "elf" / "cases").iterdir():
            (corpus / case.name).write_bytes(case.read_bytes()[:LONGEST])
        options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-timeout=10"]
        options += ["-rss_limit_mb=1024", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], str(corpus), *options], keeps_promises)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
