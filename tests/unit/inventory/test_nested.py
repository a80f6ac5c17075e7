"""Archives, packages and self-extracting programs: what lies in them ships with the tree."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from elf_images import Image, Part, fat_binary, fat_entry
from raw_archives import END, entry, pax

from buildmatrix.index.depth import read_parts
from buildmatrix.index.sequential import read_stream
from buildmatrix.index.wheels import _LocalWheel
from buildmatrix.inventory import mattering, nested
from buildmatrix.inventory.collect import collect
from buildmatrix.inventory.model import Inventory
from buildmatrix.loader.resolver import resolve
from buildmatrix.trees.directory import DirectoryTree
from buildmatrix.trees.wheel import WheelTree

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
    "x.tgz": ("compressed", lambda files: gzip.compress(tarred(files))),
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
    assert (binary.packed is None) == (kind == "tar")
    assert inventory.unread == ()
    # Nobody loads it as long as it is not unpacked.
    assert all(one.binary != binary.path for one in resolve(inventory).needed)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress), ("zst", zstd)],
)
def test_a_compressed_library_is_a_library(
    suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    inventory = scan(
        tmp_path, {f"libkernels.so.{suffix}": pack(LIBRARY), "notes.gz": pack(b"x" * 9)}
    )
    assert inside(inventory) == [f"libkernels.so.{suffix}!/libkernels.so"]
    assert [one.kind for one in inventory.containers] == ["compressed"]


def test_a_wheel_says_the_same_of_its_containers_as_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that are too large to be held in memory."""
    for module in ("inflating", "containers"):
        monkeypatch.setattr(f"buildmatrix.trees.{module}.LARGEST_HELD", 4096)
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
            streamed = read_stream(local.stream(), local.size, WheelTree(wheel)).reading.inventory
        for one in (found, streamed):
            assert one.containers == folder.containers
            assert [replace(b, packed=None) for b in one.binaries] == [
                replace(b, packed=None) for b in folder.binaries
            ]


def test_an_archive_of_a_wheel_on_an_index_is_read_or_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The archive stands for those that are larger than what is read beyond a wheel's share.
    monkeypatch.setattr("buildmatrix.index.ends.CONTAINERS_WHOLE", 0)
    noise = {"noise.bin": noise_of(6_000_000)}
    small, large = zipped(FILES), zipped({**FILES, **noise})
    plain = zipped({"big.csv": noise["noise.bin"]}, zipfile.ZIP_STORED)
    assert len(large) > mattering.LARGE_CONTAINER
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
    monkeypatch.setattr(nested, "LARGE_CONTAINER", 4000)
    monkeypatch.setattr("buildmatrix.inventory.collect.LARGE_CONTAINER", 4000)
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
    monkeypatch.setattr(nested, "SMALL_ALLOWANCE", 0)
    monkeypatch.setattr("buildmatrix.inventory.collect.LARGE_CONTAINER", 1000)
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
    monkeypatch.setattr("buildmatrix.inventory.collect.LARGE_CONTAINER", 100)
    map_of = ("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")
    sparse = pax(*map_of) + entry("libx.so", LIBRARY) + entry("liby.so", LIBRARY) + END
    inventory = scan(tmp_path, {"a.tar": sparse, "b.tgz": gzip.compress(sparse)})
    assert [one.path for one in inventory.unread] == ["a.tar", "b.tgz"]
    assert all("sparse" in one.why for one in inventory.unread)


def test_streams_beyond_the_budget_stay_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (gzip.compress(tarred({**FILES, "n": bytes(number)})) for number in (9, 90_000))
    monkeypatch.setattr(nested, "MOST_STREAMED", len(one))
    monkeypatch.setattr("buildmatrix.inventory.collect.LARGE_CONTAINER", 100)
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
    monkeypatch.setattr("buildmatrix.trees.zstd.decompressor", lambda: None)
    monkeypatch.setattr("buildmatrix.inventory.collect.LARGE_CONTAINER", 100)
    files = {
        "a.deb": deb(zstd(tarred(FILES)), "data.tar.zst"),
        "b.tgz": gzip.compress(tarred(FILES)),
    }
    inventory = scan(tmp_path, files)
    assert [path.partition("!")[0] for path in inside(inventory)] == ["b.tgz"]
    assert [(one.path, "Zstandard" in one.why) for one in inventory.unread] == [("a.deb", True)]
