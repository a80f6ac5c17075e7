"""Architectures of real wheels: those that NVIDIA's own lister sees in the same bytes.

cuobjdump 13.5 passes over containers in ordinary data, and without `-all` over `__nv_relfatbin`. It
ends at the first object that it cannot read (spconv); what it lists is right. So the wheels here
are such that it lists everything.
"""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus_fetch import fetch, wheel_folder
from corpus_truth import read_truth
from nvidia_toolchain import CUOBJDUMP

from buildmatrix.facts.binaries import fat_binaries
from buildmatrix.facts.binaries.groups import LONGEST_NAME, read_kernel_names
from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf.model import DeviceCode, Elf
from buildmatrix.facts.trees.archive import BytesSource

pytestmark = pytest.mark.network

#: Files, and entries of fat binaries in them; 23 MB of wheels.
FILES = (
    ("torchvision 0.29.2", "torchvision/_C_stable.so", 49),
    ("torchvision 0.29.2", "torchvision.libs/libnvjpeg.4a0b5c81.so.13", 120),
    ("torchao 0.18.0", "torchao/_C_cutlass_90a.abi3.so", 6),
    ("xformers 0.0.35", "xformers/_C.so", 44),
    ("jax-cuda12-plugin 0.10.2", "jax_cuda12_plugin/_solver.so", 18),
)
_ENTRY = re.compile(r"^Fatbin (elf|ptx) code:\n=+\narch = (?:sm|compute)_(\S+)$", re.MULTILINE)
_FUNCTION = re.compile(r"^ Function (\S+):$", re.MULTILINE)
_KINDS = {"elf": "sass", "ptx": "ptx"}
_PREFIXES = {"sass": "sm_", "ptx": "compute_"}


@pytest.fixture(scope="module")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lister, unpacked from its wheel."""
    path = tmp_path_factory.mktemp("cuobjdump") / "cuobjdump"
    with zipfile.ZipFile(fetch(CUOBJDUMP, wheel_folder())) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/bin/cuobjdump"))
        path.write_bytes(wheel.read(name))
    path.chmod(0o755)
    return path


def _wheel(line: str) -> Path:
    (wheel,) = (wheel for wheel in read_truth() if str(wheel) == line)
    return fetch(wheel, wheel_folder())


def _read(line: str, name: str) -> tuple[Elf, bytes]:
    with zipfile.ZipFile(_wheel(line)) as archive:
        data = archive.read(name)
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    return elf, data


def _listed(program: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(("line", "name", "entries"), FILES, ids=[name for _, name, _ in FILES])
def test_entries_are_those_that_the_vendors_lister_sees(
    line: str, name: str, entries: int, cuobjdump: Path, tmp_path: Path
) -> None:
    elf, data = _read(line, name)
    copy = tmp_path / "copy.so"
    copy.write_bytes(data)
    theirs = Counter(
        f"{_KINDS[kind]} {_PREFIXES[_KINDS[kind]]}{arch}"
        for kind, arch in _ENTRY.findall(_listed(cuobjdump, str(copy)))
    )
    ours: Counter[str] = Counter()
    for code in elf.device_code:
        ours[f"{code.kind} {code.arch}"] += code.count
    assert ours == theirs
    assert ours.total() == entries
    # Each object has one entry for each of its architectures.
    for arch in {arch for group in elf.code_groups for arch in group.architectures}:
        in_groups = sum(group.count for group in elf.code_groups if arch in group.architectures)
        assert in_groups == sum(code.count for code in elf.device_code if code.arch == arch)


@pytest.mark.parametrize(("line", "name"), [file[:2] for file in FILES], ids=[f[1] for f in FILES])
def test_kernels_are_those_that_the_vendors_lister_sees(
    line: str, name: str, cuobjdump: Path, tmp_path: Path
) -> None:
    _, data = _read(line, name)
    copy = tmp_path / "copy.so"
    copy.write_bytes(data)
    listed = _listed(cuobjdump, "-res-usage", str(copy)).split("Fatbin elf code:")[1:]
    theirs = [{kernel[:LONGEST_NAME] for kernel in _FUNCTION.findall(part)} for part in listed]
    source = BytesSource(data)
    ours = [read_kernel_names(source, entry, 1 << 20) for entry in _machine_code(data)]
    assert len(ours) == len(theirs)
    whole = 0
    for (names, is_empty), kernels_of_entry in zip(ours, theirs, strict=True):
        assert set(names) <= kernels_of_entry
        # The beginning of an entry has the first of them, and those that have none are known.
        assert bool(names) == bool(kernels_of_entry)
        assert is_empty == (not kernels_of_entry)
        whole += set(names) == kernels_of_entry
    assert whole >= len(ours) * 3 // 4


def _machine_code(data: bytes) -> Iterator[DeviceCode]:
    """The entries of all fat binaries, in the order of the file."""
    at = 0
    while (at := data.find(fat_binaries.FATBIN_MAGIC, at)) >= 0:
        container = fat_binaries.read_fatbin(BytesSource(data), at, len(data))
        if container is None:
            at += 1
            continue
        yield from (entry for entry in container.entries if entry.kind == "sass")
        at = container.end


@pytest.mark.parametrize(
    ("line", "machine_code", "portable"),
    [
        ("jax-cuda12-plugin 0.10.2", {50, 60, 70, 80, 90, 100, 101, 120}, {120}),
        ("torchvision 0.28.0", {75, 80, 86, 89, 90, 100, 103, 110, 120, 121}, {120, 121}),
    ],
)
def test_a_wheel_has_the_architectures_that_another_reader_found(
    line: str, machine_code: set[int], portable: set[int]
) -> None:
    """They were found by a walk over the entry headers that shares no code with this one."""
    ours: dict[str, set[int]] = {"sass": set(), "ptx": set()}
    with zipfile.ZipFile(_wheel(line)) as archive:
        for name in archive.namelist():
            data = archive.read(name) if ".so" in name.rpartition("/")[2] else b""
            elf = read_elf(BytesSource(data), len(data)) if data else None
            for code in elf.device_code if elf else ():
                assert code.arch is not None
                ours[code.kind].add(int(code.arch.partition("_")[2].rstrip("af")))
    assert (ours["sass"], ours["ptx"]) == (machine_code, portable)
