"""A wheel whose members pass by once says what its unpacked files say."""

from __future__ import annotations

import errno
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import pytest
from elf_images import ALLOC, EXEC, Image, Part, bundle, fat_binary, fat_entry

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory, Stats
from buildmatrix.facts.trees import zip_archive
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.facts.trees.wheel import WheelTree

CODE = bytes(range(7, 251)) * 40
FATBIN = fat_binary(fat_entry(2, 90, bytes(5000)), fat_entry(1, 80, bytes(300)))


def library(number: int, *, section_headers: bool = True) -> bytes:
    return Image(
        needed=["libc.so.6", f"libcudart.so.{number}"],
        strings={14: f"libx{number}.so", 29: "$ORIGIN"},
        parts=[
            Part(".text", CODE, flags=ALLOC | EXEC),
            Part(".rodata", b"\0libcuda.so.1\0" + bytes(9000) + FATBIN + b"\0libnccl.so.2\0"),
            Part(".nv_fatbin", FATBIN * 3),
            Part(".debug_str", b"libnothing.so.1\0", flags=0),
        ],
        section_headers=section_headers,
    ).build()


def archive(*members: bytes) -> bytes:
    head = b"%-16s%-12d%-6d%-6d%-8o%-10d`\n"
    return b"!<arch>\n" + b"".join(
        head % (b"x.o/", 0, 0, 0, 0o644, len(one)) + one + b"\n" * (len(one) % 2) for one in members
    )


def files() -> dict[str, bytes]:
    hip = bundle({"hipv4-amdgcn-amd-amdhsa--gfx942": bytes(4000)})
    found = {
        "x/__init__.py": b"import ctypes\nctypes.CDLL('libcuda.so.1')\n",
        "x/libone.so": library(1),
        "x/libbare.so": library(2, section_headers=False),
        "x/kernels.hsaco": Image(machine=224, flags=0x4C, parts=[Part(".text", CODE * 3)]).build(),
        "x/kernels.fatbin": FATBIN * 5,
        "x/kernels.hipfb": hip * 4,
        "x/kernels.ptx": b".version 8.0\n.target sm_90\n" + b"//" * 20_000,
        "x/libx.a": archive(*(Image(type=1, parts=[Part(".nv_fatbin", FATBIN)]).build(),) * 9),
        "x/data.bin": bytes(50_000),
        "x-1.dist-info/METADATA": b"Name: x\nVersion: 1\n",
        "x-1.dist-info/WHEEL": b"Wheel-Version: 1.0\n",
    }
    # Made by a real linker, where this interpreter has any.
    for path in sorted(Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so"))[:12]:
        found[f"x/{path.name}"] = path.read_bytes()
    record = "".join(f"{path},,\n" for path in found)
    return {**found, "x-1.dist-info/RECORD": record.encode()}


def facts(inventory: Inventory) -> Inventory:
    """What the bytes say, without what packing and reading them cost."""
    binaries = tuple(replace(one, packed=None) for one in inventory.binaries)
    return replace(inventory, binaries=binaries, stats=Stats())


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_members_that_pass_by_once_say_what_the_unpacked_files_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    wheel, folder = tmp_path / "x-1-py3-none-any.whl", tmp_path / "unpacked"
    with zipfile.ZipFile(wheel, "w", method) as zipped:
        for name, data in files().items():
            zipped.writestr(name, data)
        zipped.extractall(folder)
    with DirectoryTree(folder) as tree:
        unpacked = collect(tree)
    assert len(unpacked.binaries) >= 2 and len(unpacked.artefacts) == 5
    assert not unpacked.unread

    monkeypatch.setattr("buildmatrix.facts.trees.zip_archive.LARGEST_HELD", 100)
    monkeypatch.setattr(zip_archive, "BLOCK", 8192)
    monkeypatch.setattr(zip_archive, "HEAD", 4096)
    with WheelTree(wheel) as tree:
        passed = collect(tree)
    assert facts(passed) == facts(unpacked)
    # Nothing is inflated twice, and nothing without interest to its end.
    assert passed.stats.bytes_read <= sum(map(len, files().values()))


def test_a_large_member_for_which_there_is_no_room_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in files().items():
            zipped.writestr(name, data)
    monkeypatch.setattr(zip_archive, "LARGEST_HELD", 20_000)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with WheelTree(wheel) as tree:
        inventory = collect(tree)
    assert inventory.unread
    assert {one.why for one in inventory.unread} == {"no space left on device"}
