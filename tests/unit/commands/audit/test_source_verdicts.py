"""Source distributions are judged by their source, and never built (BM107)."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from auditcases import subject
from rulecases import only, pin, target

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.store.cache import Cache
from buildmatrix.judge.judging import judge_wheels
from buildmatrix.judge.locks import Wheels
from buildmatrix.judge.unread import source_verdicts
from buildmatrix.locks.index.model import USUAL_SOURCE
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Sdist, SourceFacts

PYPROJECT = "[project]\nname = 'demo'\nversion = '1.0'\ndependencies = [%s]\n"
SETUP = "from setuptools import setup\nsetup(name='demo', version='1.0')\n"
PURE = {"pyproject.toml": PYPROJECT % "", "demo/__init__.py": "print(1)\n"}


def archive(folder: Path, files: Mapping[str, str | bytes]) -> Sdist:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w:gz") as tar:
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            info = tarfile.TarInfo(f"demo-1.0/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    path = folder / "demo-1.0.tar.gz"
    path.write_bytes(output.getvalue())
    digest = hashlib.sha256(output.getvalue()).hexdigest()
    return Sdist(path.name, str(path), digest, path.stat().st_size)


def read(folder: Path, files: Mapping[str, str | bytes]) -> SourceFacts:
    reader = WheelReader(None, Cache(folder / "cache"))
    sdist = archive(folder, files)
    facts = reader.read_source(sdist, "demo", "1.0", USUAL_SOURCE)
    Path(sdist.url).unlink()
    assert reader.read_source(sdist, "demo", "1.0", USUAL_SOURCE) == facts
    return facts


def lock_with(facts: SourceFacts | str, backend: str = "cpu", *, is_locked: bool = False) -> Wheels:
    why = {"demo": "there is only its source code"}
    package = replace(pin("demo 1.0"), wheels=(), source_only=True)
    where = subject(target(backend), package, without_wheel=why)
    assert where.lock is not None
    lock = replace(where.lock, inputs="" if is_locked else "sha256:0")
    none = replace(where.inventory, distributions=())
    return replace(where, sources={"demo": facts}, lock=lock, inventory=none)


#: Bytes that compress badly: a table, and a library that is packed alone.
TABLE = b"".join(b"%d,\n" % (number * 2654435761 % 2**32) for number in range(20_000))

CASES: list[tuple[dict[str, str | bytes], str, str, str]] = [
    ({}, "ok", "note", "by its source: nothing in it is built already"),
    ({"demo/_c.pyx": "cdef int x\n", "src/a.cpp": "int x;"}, "ok", "note", "by its source"),
    ({"csrc/kernel.cu": "__global__ void k();"}, "optional", "warning", "built for NVIDIA CUDA"),
    ({"setup.py": SETUP + "CUDAExtension('x', [])\n"}, "optional", "warning", "(setup.py)"),
    ({"CMakeLists.txt": "find_package(CUDAToolkit)"}, "optional", "warning", "CMakeLists.txt"),
    ({"CMakeLists.txt": "enable_language(HIP)"}, "optional", "warning", "AMD ROCm"),
    ({"a/b/CMakeLists.txt": "find_package(IntelSYCL)"}, "optional", "warning", "Intel oneAPI"),
    ({"demo/lib/libx.so": b"\x7fELF" + bytes(900)}, "ok", "warning", "was built elsewhere"),
    ({"demo/x.pyd": b"MZ" + bytes(900)}, "ok", "warning", "was built elsewhere"),
    ({"demo/k.cubin": b"x" * 900}, "ok", "warning", "was built elsewhere"),
    ({"demo/k.gz": gzip.compress(b"\x7fELF" + TABLE)}, "ok", "warning", "was built elsewhere"),
    ({"tests/costs.csv.gz": gzip.compress(TABLE)}, "ok", "note", "by its source"),
    ({"demo/a.py": "CDLL('libcuda.so.1')\n"}, "optional", "warning", "libcuda.so.1 (demo/a.py)"),
    ({"pyproject.toml": "[build-system]\nrequires = []\n"}, "ok", "warning", "what it requires"),
]


@pytest.mark.parametrize(("files", "expected", "severity", "says"), CASES)
def test_a_source_says_what_it_is_built_for(
    tmp_path: Path, files: dict[str, str | bytes], expected: str, severity: str, says: str
) -> None:
    where = lock_with(read(tmp_path, {**PURE, **files}))
    finding = only(judge_wheels(where).findings, "BM107")
    (verdict,) = source_verdicts(where)
    assert (verdict.verdict, finding.severity) == (expected, severity)
    assert says in finding.message and says in verdict.reason
    assert verdict.certain is (severity == "note")


def test_what_a_source_builds_for_its_own_backend_is_right_there(tmp_path: Path) -> None:
    facts = read(tmp_path, {**PURE, "csrc/kernel.cu": "__global__ void k();"})
    for backend, severity in (("cuda", "note"), ("rocm", "warning")):
        where = lock_with(facts, backend)
        assert only(judge_wheels(where).findings, "BM107").severity == severity


def test_a_lock_says_what_a_source_requires(tmp_path: Path) -> None:
    facts = read(tmp_path, {"setup.py": SETUP})
    for is_locked, severity in ((True, "note"), (False, "warning")):
        where = lock_with(facts, is_locked=is_locked)
        assert only(judge_wheels(where).findings, "BM107").severity == severity


def test_a_source_that_was_not_read_leaves_the_run_undecided(tmp_path: Path) -> None:
    sdist = archive(tmp_path, PURE)
    reader = WheelReader(None, None)
    with pytest.raises(UndecidedError, match="which is not read"):
        reader.read_source(sdist, "demo", "1.0", 100)
    with pytest.raises(UndecidedError, match="it is another file than the one that was locked"):
        reader.read_source(replace(sdist, sha256="0" * 64), "demo", "1.0", USUAL_SOURCE)
    finding = only(judge_wheels(lock_with("it has 3 GB")).findings, "BM107")
    assert (
        finding.severity == "warning" and "its source was not read: it has 3 GB" in finding.message
    )
