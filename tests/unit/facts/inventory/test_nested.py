"""Archives, packages and self-extracting programs: what lies in them ships with the tree."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import re
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from elf_images import Image, Part, fat_binary, fat_entry
from raw_archives import END, entry, pax

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory import file_facts, listing
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader import resolve
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.locks.index.depth import read_parts
from buildmatrix.locks.index.wheels import _LocalWheel, read_all

if sys.version_info >= (3, 14):
    from compression.zstd import compress as zstd
else:
    from backports.zstd import compress as zstd

Files = Mapping[str, bytes]

LIBRARY = Image(
    needed=["libcuda.so.1"],
    strings={14: "libkernels.so.1"},
    parts=[
        Part(".rodata", bytes(5000)),
        Part(".nv_fatbin", fat_binary(fat_entry(2, 90, bytes(4000)))),
    ],
).build()
PTX = b"//\n// Generated\n.version 8.0\n.target sm_80\n.address_size 64\n" + b"".join(
    b"mov.u32 %%r%d, %d;\n" % (number, number * 2654435761 % 2**32) for number in range(900)
)
FILES = {
    "lib/linux_64/libkernels.so": LIBRARY,
    "org/acme/Main.class": b"\xca\xfe\xba\xbe" + bytes(900),
    "README.txt": b"text " * 200,
}
METADATA = {"x-1.dist-info/METADATA": b"Name: x\nVersion: 1\n", "x-1.dist-info/WHEEL": b""}


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(files: Files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def deb(data: bytes, name: str = "data.tar.xz") -> bytes:
    head = b"%-16s%-12d%-6d%-6d%-8o%-10d`\n"
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": lzma.compress(tarred({}), preset=0),
        name: data,
    }
    return b"!<arch>\n" + b"".join(
        head % (part.encode(), 0, 0, 0, 0o644, len(data)) + data + b"\n" * (len(data) % 2)
        for part, data in parts.items()
    )


def conda(files: Files) -> bytes:
    """The newer format of conda's packages."""
    stored = {"metadata.json": b"{}", "pkg-x-1-0.tar.zst": zstd(tarred(files))}
    return zipped(stored, zipfile.ZIP_STORED)


def pyinstaller(files: Files, *, in_section: bool = False) -> bytes:
    """A program with the archive that PyInstaller 6 writes (archive/writers.py)."""
    body, table = bytearray(), bytearray()
    for name, data in files.items():
        packed = zlib.compress(data)
        encoded = name.encode() + b"\0"
        encoded += bytes(-(18 + len(encoded)) % 16)
        sizes = len(body), len(packed), len(data)
        table += struct.pack("!IIIIBc", 18 + len(encoded), *sizes, 1, b"b") + encoded
        body += packed
    length = len(body) + len(table) + 88
    cookie = struct.pack(
        "!8sIIII64s", b"MEI\014\013\012\013\016", length, len(body), len(table), 312, b"libpython"
    )
    archive = bytes(body + table + cookie)
    parts = [Part(".text", bytes(3000))]
    if in_section:
        return Image(parts=[*parts, Part("pydata", archive, flags=0)]).build()
    return Image(parts=parts).build() + bytes(300_000) + archive


def cpio(files: Files, form: str) -> bytes:
    """An archive whose headers have one of the forms of cpio(5)."""
    archive = b""
    for number, (name, data) in enumerate({**files, "TRAILER!!!": b""}.items()):
        encoded = name.encode() + b"\0"
        if form == "newc":
            fields = (number, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
            head, padding = b"070701" + b"".join(b"%08X" % field for field in fields), 4
        elif form == "odc":
            head = b"070707" + b"".join(b"%06o" % n for n in (0, number, 0o100644, 0, 0, 1, 0))
            head, padding = head + b"%011o%06o%011o" % (0, len(encoded), len(data)), 1
        else:
            sizes = len(encoded), *divmod(len(data), 1 << 16)
            numbers = (0o70707, 0, number, 0o100644, 0, 0, 1, 0, 0, 0, *sizes)
            head, padding = struct.pack(f"{form}13H", *numbers), 2
        archive += head + encoded
        archive += bytes(-len(archive) % padding) + data
        archive += bytes(-len(archive) % padding)
    return archive + bytes(-len(archive) % 512)


def rpm(payload: bytes) -> bytes:
    """A package with a signature of one entry and a header of two."""
    signature = struct.pack(">4s4xII", b"\x8e\xad\xe8\x01", 1, 5) + bytes(16 + 5)
    header = struct.pack(">4s4xII", b"\x8e\xad\xe8\x01", 2, 3) + bytes(2 * 16 + 3)
    padding = bytes(-len(signature) % 8)
    return b"\xed\xab\xee\xdb" + bytes(92) + signature + padding + header + payload


def lz4(data: bytes) -> bytes:
    """One frame of one block: literals, and runs of zeros as copies of the byte before."""

    def more(length: int) -> bytes:
        count, rest = divmod(length - 15, 255)
        return b"" if length < 15 else b"\xff" * count + bytes([rest])

    block, at = b"", 0
    for run in re.finditer(rb"\0{20,}", data[:-12]):
        literals, copied = data[at : run.start() + 1], len(run[0]) - 1 - 4
        block += bytes([min(15, len(literals)) << 4 | min(15, copied)])
        block += more(len(literals)) + literals + b"\1\0" + more(copied)
        at = run.end()
    block += bytes([min(15, len(data) - at) << 4]) + more(len(data) - at) + data[at:]
    return b"\x04\x22\x4d\x18\x60\x70\x73" + struct.pack("<I", len(block)) + block + bytes(4)


def lzma_alone(data: bytes) -> bytes:
    return lzma.compress(data, lzma.FORMAT_ALONE)


def without_magic(files: Files) -> bytes:
    """A tar archive as before POSIX."""
    archive = bytearray(tarred(files))
    at = 0
    while archive[at]:
        size = int(archive[at + 124 : at + 135], 8)
        archive[at + 257 : at + 265] = bytes(8)
        archive[at + 148 : at + 156] = b" " * 8
        archive[at + 148 : at + 156] = b"%06o\0 " % sum(archive[at : at + 512])
        at += 512 + size + -size % 512
    return bytes(archive)


def script(files: Files) -> bytes:
    """What makeself writes, with more behind its text than plain scripts have."""
    text = b"#!/bin/sh\n# This script was generated using Makeself 2.4.0\nskip=3\n"
    return text + gzip.compress(tarred({**files, "noise": noise_of(1 << 20)}))


CONTAINERS: Mapping[str, tuple[str, Callable[[Files], bytes]]] = {
    "app.jar": ("zip", zipped),
    "model.pt2": ("zip", lambda files: zipped(files, zipfile.ZIP_STORED)),
    "app.pyz": ("zip", lambda files: b"#!/usr/bin/env python3\n" + zipped(files)),
    "x.whl": ("wheel", lambda files: zipped({**files, **METADATA})),
    "x.conda": ("conda", conda),
    "x.tar.bz2": ("conda", lambda f: bz2.compress(tarred({"info/index.json": b"{}", **f}))),
    "x_1_amd64.deb": ("deb", lambda files: deb(lzma.compress(tarred(files), preset=0))),
    "y_1_amd64.deb": ("deb", lambda files: deb(zstd(tarred(files)), "data.tar.zst")),
    "plain.tar": ("tar", tarred),
    "old.tar": ("tar", without_magic),
    "x.tgz": ("compressed", lambda files: gzip.compress(tarred(files))),
    "x.tar.zz": ("compressed", lambda files: zlib.compress(tarred(files))),
    "x.tar.lzma": ("compressed", lambda files: lzma_alone(tarred(files))),
    "x.tar.lz4": ("lz4", lambda files: lz4(tarred(files))),
    "initrd.img": ("cpio", lambda files: cpio(files, "newc")),
    "initrd.gz": ("compressed", lambda files: gzip.compress(cpio(files, "newc"))),
    "a.cpio": ("cpio", lambda files: cpio(files, "odc")),
    "b.cpio": ("cpio", lambda files: cpio(files, "<")),
    "c.cpio": ("cpio", lambda files: cpio(files, ">")),
    "x-1-1.x86_64.rpm": ("rpm", lambda files: rpm(zstd(cpio(files, "newc")))),
    "x.run": ("script", script),
    "program": ("pyinstaller", pyinstaller),
    "program2": ("pyinstaller", lambda files: pyinstaller(files, in_section=True)),
}


def scan(root: Path, files: Files) -> Inventory:
    for name, data in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    with DirectoryTree(root) as tree:
        return collect(tree)


def inside(inventory: Inventory) -> list[str]:
    return [one.path for one in inventory.binaries if one.container is not None]


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_kind_of_container_is_opened(name: str, tmp_path: Path) -> None:
    kind, made = CONTAINERS[name]
    inventory = scan(tmp_path, {name: made(FILES)})
    assert [(one.path, one.kind, one.closed) for one in inventory.containers] == [
        (name, kind, None)
    ]
    (binary,) = (one for one in inventory.binaries if one.container == name)
    assert binary.path == f"{name}!/lib/linux_64/libkernels.so"
    assert binary.size == len(LIBRARY)
    assert [code.arch for code in binary.elf.device_code] == ["sm_90"]
    assert (binary.packed is None) == (kind in ("tar", "cpio"))
    assert inventory.unread == ()
    # Nobody loads it as long as it is not unpacked.
    assert all(one.binary != binary.path for one in resolve(inventory).needed)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("gz", gzip.compress),
        ("xz", lzma.compress),
        ("bz2", bz2.compress),
        ("zst", zstd),
        ("zz", zlib.compress),
        ("lzma", lzma_alone),
        ("lz4", lz4),
    ],
)
def test_a_compressed_library_is_a_library(
    suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    inventory = scan(
        tmp_path, {f"libkernels.so.{suffix}": pack(LIBRARY), "notes.gz": pack(b"x" * 9)}
    )
    assert inside(inventory) == [f"libkernels.so.{suffix}!/libkernels.so"]
    assert [one.kind for one in inventory.containers] == [
        "lz4" if suffix == "lz4" else "compressed"
    ]


EMPTY_ZSTD = b"\x50\x2a\x4d\x18" + struct.pack("<I", 6_000) + bytes(6_000)
#: Streams that begin with a lot of nothing, or that take more memory than there is for them.
LATE: Mapping[str, Callable[[bytes], bytes]] = {
    "a long comment": lambda data: (
        gzip.compress(data)[:3]
        + b"\x10"
        + bytes(6)
        + b"x" * 9_000
        + b"\0"
        + gzip.compress(data)[10:]
    ),
    "empty members": lambda data: gzip.compress(b"") * 900 + gzip.compress(data),
    "empty bzip2 streams": lambda data: bz2.compress(b"") * 900 + bz2.compress(data),
    "a skipped frame": lambda data: EMPTY_ZSTD + zstd(data),
    "a short skipped frame before LZ4": lambda data: b"\x5f\x2a\x4d\x18\2\0\0\0xx" + lz4(data),
    "a ZIP of several parts": lambda data: b"PK\x07\x08" + zipped({"libx.so": data}),
    "a ZIP in gzip": lambda data: gzip.compress(zipped({"libx.so": data})),
    "gzip in xz": lambda data: lzma.compress(gzip.compress(data)),
    "a large dictionary": lambda data: _with_dictionary_of_512_mib(lzma.compress(data)),
}


def _with_dictionary_of_512_mib(stream: bytes) -> bytes:
    """An xz stream whose first block asks for it; liblzma would hold 5 GiB to write one."""
    header = bytearray(stream[12 : 12 + 4 * (stream[12] + 1) - 4])
    assert header[1:4] == b"\0\x21\1"  # one filter, LZMA2, one byte of properties
    header[4] = 34  # xz-file-format.txt, 5.3.1
    return (
        stream[:12] + header + zlib.crc32(header).to_bytes(4, "little") + stream[16 + len(header) :]
    )


@pytest.mark.parametrize("name", LATE)
def test_no_stream_hides_a_library_by_how_it_begins(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found, or it is said that nobody looked."""
    for module in ("file_facts", "collect"):
        monkeypatch.setattr(f"buildmatrix.facts.inventory.{module}.LARGE_CONTAINER", 400)
    inventory = scan(tmp_path, {"weights.json": LATE[name](LIBRARY + noise_of(2_000))})
    (container,) = inventory.containers
    assert (len(inside(inventory)) == 1) != (container.closed is not None)
    assert [one.path for one in inventory.unread] == ["weights.json"] * (
        container.closed is not None
    )


#: Bytes by their place.
KNOWN: Mapping[str, Mapping[int, bytes]] = {
    "7z": {0: b"7z\xbc\xaf\x27\x1c"},
    "squashfs": {0: b"hsqs"},
    "rar": {0: b"Rar!\x1a\x07\1\0"},
    "cab": {0: b"MSCF"},
    "lha": {2: b"-lh5-"},
    "lzip": {0: b"LZIP\1\x0c"},
    "lzop": {0: b"\x89LZO\0\r\n\x1a\n"},
    "lzw": {0: b"\x1f\x9d\x90"},
    "erofs": {1024: b"\xe2\xe1\xf5\xe0"},
    "ext": {1024: b"\1\0\0\0", 1080: b"\x53\xef\1\0\1\0", 1100: b"\1"},
    "iso9660": {32 << 10: b"\1CD001\1"},
    "gpt": {512: b"EFI PART"},
    "qcow2": {0: b"QFI\xfb\0\0\0\3"},
}


@pytest.mark.parametrize("format", KNOWN)
def test_what_is_not_opened_is_undecided(format: str, tmp_path: Path) -> None:
    data = bytearray(listing.LARGE_CONTAINER)
    for at, magic in KNOWN[format].items():
        data[at : at + len(magic)] = magic
    inventory = scan(tmp_path, {"notes.txt": bytes(data), "zeros.bin": bytes(len(data))})
    assert [(one.path, one.kind) for one in inventory.containers] == [("notes.txt", format)]
    assert [one.path for one in inventory.unread] == ["notes.txt"]


#: Behind blocks of nothing, in a stream of deflate.
NOTHING = b"\0\0\0\xff\xff"


def behind_nothing(name: str, data: bytes) -> bytes:
    """A wheel with a member whose packed bytes begin with 2 KiB of empty blocks."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = NOTHING * 410 + packer.compress(data) + packer.flush()
    crc, encoded = zlib.crc32(data), name.encode()
    fields = (20, 0, 8, 0, 33, crc, len(packed), len(data), len(encoded), 0)
    local = b"PK\3\4" + struct.pack("<5H3I2H", *fields) + encoded + packed
    entry = b"PK\1\2" + struct.pack("<H5H3I2H", 20, *fields) + bytes(14) + encoded
    return local + entry + b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 1, 1, len(entry), len(local), 0)


@pytest.mark.parametrize("name", ["x.py", "x.pyc", "weights.json", "RECORD", "x.pth"])
@pytest.mark.parametrize("packed", ["library", "zip"])
def test_no_name_hides_what_a_file_is(name: str, packed: str, tmp_path: Path) -> None:
    """The first bytes decide in a folder, a wheel, a part of a wheel, and an archive."""
    data = {"library": LIBRARY + noise_of(80_000), "zip": zipped(FILES)}[packed]
    expected = [f"pkg/{name}" + ("!/lib/linux_64/libkernels.so" if packed == "zip" else "")]
    record = b"pkg/%b,,\n" % name.encode()
    files = {f"pkg/{name}": data, **METADATA, "x-1.dist-info/RECORD": record}
    wheel = tmp_path / "x-1-py3-none-any.whl"
    found = [scan(tmp_path / "folder", files)]
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        wheel.write_bytes(zipped(files, method))
        with WheelTree(wheel) as tree:
            found.append(collect(tree))
        with _LocalWheel(wheel) as local:
            found.append(read_all(local.stream())[0].inventory)
            found.append(read_parts(local, "heads").inventory)
    for inventory in found:
        assert [one.path for one in inventory.binaries] == expected
        assert inventory.closed == ()
    for number, container in enumerate((zipped(files), gzip.compress(tarred(files)))):
        inventory = scan(tmp_path / str(number), {"app.data": container})
        if packed == "library":
            assert inside(inventory) == [f"app.data!/pkg/{name}"]


def test_no_member_of_a_wheel_hides_behind_blocks_of_nothing(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    for name in ("weights.json", "x.py"):
        wheel.write_bytes(behind_nothing(name, LIBRARY + noise_of(80_000)))
        with zipfile.ZipFile(wheel) as archive:
            assert archive.testzip() is None
        with _LocalWheel(wheel) as local:
            inventory = read_parts(local, "heads").inventory
        assert [one.path for one in inventory.binaries] == [name]
        inventory = scan(tmp_path / name, {"app.jar": wheel.read_bytes()})
        assert inside(inventory) == [f"app.jar!/{name}"]


def test_a_wheel_says_the_same_of_its_containers_as_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that are too large to be held in memory."""
    for module in ("zip_archive", "containers"):
        monkeypatch.setattr(f"buildmatrix.facts.trees.{module}.LARGEST_HELD", 4096)
    packages = {name: made(FILES) for name, (_, made) in CONTAINERS.items()}
    files = {f"x/{name}": data for name, data in packages.items()}
    record = "".join(f"{path},,\n" for path in files).encode()
    files |= {**METADATA, "x-1.dist-info/RECORD": record}
    folder = scan(tmp_path / "site-packages", files)
    assert len(inside(folder)) == len(packages)
    assert {one.owner for one in folder.containers} == {"x==1"}
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        wheel = tmp_path / "x-1-py3-none-any.whl"
        wheel.write_bytes(zipped(files, method))
        with WheelTree(wheel) as tree:
            found = collect(tree)
        with _LocalWheel(wheel) as local:
            streamed = read_all(local.stream())[0].inventory
        for one in (found, streamed):
            assert one.containers == folder.containers
            assert [replace(b, packed=None) for b in one.binaries] == [
                replace(b, packed=None) for b in folder.binaries
            ]


def test_an_archive_of_a_wheel_on_an_index_is_read_or_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The archive stands for those that are larger than what is read beyond a wheel's share.
    monkeypatch.setattr("buildmatrix.locks.index.ends.CONTAINERS_WHOLE", 0)
    noise = {"noise.bin": noise_of(6_000_000)}
    small, large = zipped(FILES), zipped({**FILES, **noise})
    plain = zipped({"big.csv": noise["noise.bin"]}, zipfile.ZIP_STORED)
    assert len(large) > listing.LARGE_CONTAINER
    wheel = tmp_path / "x-1-py3-none-any.whl"
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        members = {"x/small.jar": small, "x/large.jar": large, "x/data.zip": plain}
        wheel.write_bytes(zipped({**members, **METADATA}, method))
        with _LocalWheel(wheel) as local:
            enough = read_parts(local, "heads", most=20_000_000).inventory
            scarce = read_parts(local, "heads", most=4_000_000).inventory
        assert inside(scarce) == ["x/small.jar!/lib/linux_64/libkernels.so"]
        assert inside(enough) == ["x/large.jar!/lib/linux_64/libkernels.so", *inside(scarce)]
        # Its directory says that nothing in x/data.zip matters.
        assert [one.path for one in scarce.closed] == ["x/large.jar"]
        assert enough.closed == ()


def noise_of(size: int) -> bytes:
    """Bytes that nothing packs."""
    return random.Random(size).randbytes(size)


def test_data_costs_its_list_of_files(tmp_path: Path) -> None:
    arrays = {f"{number}.npy": b"\x93NUMPY" + bytes(5000) for number in range(50)}
    checkpoint = {f"archive/data/{number}": bytes(5000) for number in range(20)}
    document = {"word/document.xml": b"<w/>" * 900, "[Content_Types].xml": b"<Types/>" * 50}
    inventory = scan(
        tmp_path,
        {
            "a.npz": zipped(arrays),
            "model.pt": zipped(
                {"archive/data.pkl": b"\x80" * 400, **checkpoint}, zipfile.ZIP_STORED
            ),
            "a.docx": zipped(document),
            "data.tar.gz": gzip.compress(tarred({"a.csv": b"1,2\n" * 9000})),
            "man.1.gz": gzip.compress(b".TH X 1\n" * 900),
        },
    )
    assert (inventory.containers, inventory.binaries, inventory.unread) == ((), (), ())


def test_what_stays_closed_is_said_where_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_facts, "LARGE_CONTAINER", 4000)
    monkeypatch.setattr("buildmatrix.facts.inventory.collect.LARGE_CONTAINER", 4000)
    noise = noise_of(20_000)
    inner = zipped({"libx.so": LIBRARY, "noise.bin": noise})
    harmless = zipped({"a.csv": noise})
    inventory = scan(
        tmp_path,
        {
            "a.zip": zipped({"inner.zip": inner, "data.zip": harmless}),
            "b.rpm": b"\xed\xab\xee\xdb" + noise,
            "cut.tar.xz": lzma.compress(tarred({"libx.so": LIBRARY, "noise": noise}), preset=0)[
                :-3000
            ],
            "broken.zip": b"PK\x03\x04" + noise,
            "small.zip": b"PK\x03\x04" + bytes(100),
        },
    )
    said = {one.path: one.why for one in inventory.unread}
    assert set(said) == {"a.zip", "b.rpm", "cut.tar.xz", "broken.zip"}
    assert "inner.zip" in said["a.zip"]
    assert "data.zip" not in said["a.zip"]


def test_bombs_stop_at_their_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_facts, "SMALL_ALLOWANCE", 0)
    monkeypatch.setattr("buildmatrix.facts.inventory.collect.LARGE_CONTAINER", 1000)
    zeros = LIBRARY + bytes(8 << 20)
    inventory = scan(
        tmp_path,
        {
            "bomb.zip": zipped({"libx.so": zeros}),
            "bomb.tar.gz": gzip.compress(tarred({"libx.so": zeros})),
            "libx.so.xz": lzma.compress(zeros, preset=0),
        },
    )
    assert sorted(one.path for one in inventory.unread) == ["bomb.tar.gz", "bomb.zip", "libx.so.xz"]
    assert inside(inventory) == []


def test_an_archive_with_a_sparse_file_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildmatrix.facts.inventory.collect.LARGE_CONTAINER", 100)
    map_of = ("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")
    sparse = pax(*map_of) + entry("libx.so", LIBRARY) + entry("liby.so", LIBRARY) + END
    inventory = scan(tmp_path, {"a.tar": sparse, "b.tgz": gzip.compress(sparse)})
    assert [one.path for one in inventory.unread] == ["a.tar", "b.tgz"]
    assert all("sparse" in one.why for one in inventory.unread)


def test_streams_beyond_the_budget_stay_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (gzip.compress(tarred({**FILES, "n": bytes(number)})) for number in (9, 90_000))
    monkeypatch.setattr(file_facts, "MOST_STREAMED", len(one))
    monkeypatch.setattr("buildmatrix.facts.inventory.collect.LARGE_CONTAINER", 100)
    inventory = scan(tmp_path, {"a.tgz": other, "b.tgz": one, "c.jar": zipped(FILES)})
    assert [path.partition("!")[0] for path in inside(inventory)] == ["b.tgz", "c.jar"]
    assert [one.path for one in inventory.unread] == ["a.tgz"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_damage_anywhere_is_an_answer(name: str, tmp_path: Path) -> None:
    """No byte of a container ends a scan, whatever it is."""
    kind, made = CONTAINERS[name]
    data = made(FILES)
    files = {}
    for step in range(40):
        at = (step * 7919) % len(data) if kind != "script" else -1 - step * 97
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        files[f"{step}-{name}"] = bytes(damaged)
        files[f"cut{step}-{name}"] = data[: len(data) * step // 40]
    scan(tmp_path, files)


def test_names_in_containers_are_text(tmp_path: Path) -> None:
    names = {"../../etc/libx.so": LIBRARY, "/abs/liby.so": LIBRARY, "a\udcff.so": LIBRARY}
    inventory = scan(tmp_path, {"x.tar": tarred_raw(names)})
    assert inside(inventory) == [
        "x.tar!/../../etc/libx.so",
        "x.tar!/a\\xff.so",
        "x.tar!/abs/liby.so",
    ]


def tarred_raw(files: Files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", errors="surrogateescape") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_without_a_library_for_zstandard_its_archives_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildmatrix.facts.trees.decompression.find_decompressor", lambda: None)
    monkeypatch.setattr("buildmatrix.facts.inventory.collect.LARGE_CONTAINER", 100)
    files = {
        "a.deb": deb(zstd(tarred(FILES)), "data.tar.zst"),
        "b.tgz": gzip.compress(tarred(FILES)),
    }
    inventory = scan(tmp_path, files)
    assert [path.partition("!")[0] for path in inside(inventory)] == ["b.tgz"]
    assert [(one.path, "Zstandard" in one.why) for one in inventory.unread] == [("a.deb", True)]


@pytest.mark.parametrize(
    ("suffix", "pack"), [("zst", zstd), ("gz", gzip.compress), ("xz", lzma.compress)]
)
def test_a_compressed_kernel_that_is_text_is_known_by_its_name(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    files = {f"x/kernel.ptx.{suffix}": pack(PTX), f"x/notes.txt.{suffix}": pack(PTX)}
    path.write_bytes(zipped({**files, **METADATA}))
    with WheelTree(path) as tree:
        whole = collect(tree)
    with _LocalWheel(path) as wheel:
        heads = read_parts(wheel, "heads", 10**7).inventory
    for inventory in (whole, heads):
        (kernel,) = inventory.artefacts
        assert kernel.path == f"x/kernel.ptx.{suffix}!/kernel.ptx"
        assert [code.arch for code in kernel.device_code] == ["compute_80"]
