"""Small files of every format that `elf` reads: where its fuzzer starts from."""

from __future__ import annotations

import lzma
import struct

from elf_images import NOTE, Image, Part, bundle, compressed_bundle, fat_binary, fat_entry


def seeds() -> list[bytes]:
    """Small files of every format."""
    fat = fat_binary(fat_entry(2, 80), fat_entry(1, 90))
    hip = bundle({"hipv4-amdgcn-amd-amdhsa--gfx942": b"x" * 100})[:4200]
    shader = struct.pack("<9I", 0x07230203, 0x10000, 0, 9, 0, 2 << 16 | 17, 1, 3 << 16 | 14, 0)
    program = b".version 8.2\n.target sm_75\n.address_size 64\n.visible .entry k()\n{}\n\0"
    dlopen = b'[{"soname":["libx.so.1"],"priority":"required"}]\0'.ljust(52, b"\0")
    note = struct.pack("<III", 4, len(dlopen), 0x407C0C0A) + b"FDO\0" + dlopen
    levels = struct.pack("<IIII", 0xC0008002, 4, 4, 0) + struct.pack("<IIII", 0xC0010002, 4, 8, 0)
    levels = struct.pack("<III", 4, len(levels), 5) + b"GNU\0" + levels
    library = Image(
        needed=["libcudart.so.12"],
        strings={14: "liba.so", 29: "$ORIGIN"},
        parts=[
            Part(".rodata", b"\0libcuda.so.1\0" + fat + shader + b"\0" + program),
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
        Image(parts=[Part(".note.gnu.property", levels, NOTE)], note_align=8).build(),
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
