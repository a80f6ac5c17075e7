"""The same files give the same findings in a folder, in a wheel and on an index, or are open."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from audit_index import CUDART, Locked, noise
from elf_images import Image, Part, fat_binary, fat_entry

from buildmatrix.commands.audit import judge_for
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.facts.trees.base import Tree
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import bare_target
from buildmatrix.reports.run import Report

#: Rules about what a base image may bring, which an audit has no say in, and about names alone.
_NOT_OF_WHEELS = ("BM302",)
BACKENDS = ("cpu", "rocm")


def kernels(size: int) -> bytes:
    return fat_binary(fat_entry(2, 80, noise(size)))


def library(size: int = 7_000_000, needed: tuple[str, ...] = ("libm.so.6",)) -> bytes:
    parts = (Part(".rodata", CUDART), Part(".nv_fatbin", kernels(size)))
    return Image(needed=needed, parts=parts).build()


def linking() -> bytes:
    return Image(needed=("libcudart.so.12",), parts=(Part(".text", noise(9_000), flags=6),)).build()


def archive(*members: bytes) -> bytes:
    data = b"!<arch>\n"
    for number, member in enumerate(members):
        head = f"m{number}.o/".ljust(48) + f"{len(member)}".ljust(10)
        data += head.encode() + b"`\n" + member + b"\n" * (len(member) % 2)
    return data


def not_loaded() -> bytes:
    """A library with a section of device code that no segment covers."""
    parts = (Part(".text", noise(9_000), flags=6), Part(".nv_fatbin", kernels(7_000_000)))
    data = bytearray(Image(needed=("libm.so.6",), parts=parts).build())
    loaded = data.index(b"\x50\xed\x55\xba") - 64
    for field in (96, 104):  # p_filesz and p_memsz of the first program header
        data[field : field + 8] = loaded.to_bytes(8, "little")
    return bytes(data)


def text(size: int) -> bytes:
    return (b"no binary, whatever it is called\n" * (size // 33 + 1))[:size]


CONTENTS: Mapping[str, Callable[[], Mapping[str, bytes]]] = {
    "harmless names": lambda: {
        f"demo/{name}": library() for name in ("x.json", ".hidden", "model.onnx")
    },
    "readme": lambda: {"demo/README": library()},
    "small, of a harmless name": lambda: {"demo/x.json": linking(), "demo/y.json": text(90_000)},
    "among many texts": lambda: {
        **{f"demo/{n}.json": text(3_000 + n) for n in range(200)},
        "demo/model.onnx": library(400_000),
    },
    "static archive": lambda: {"demo/libdemo.a": archive(library(300_000), library(7_000_000))},
    "small static archive": lambda: {"demo/libdemo.a": archive(library(60_000))},
    "thin archive": lambda: {"demo/libdemo.a": b"!<thin>\n" + b"a.o/".ljust(48) + b"9         `\n"},
    "not loaded": lambda: {"demo/_C.so": not_loaded()},
    "texts": lambda: {"demo/x.json": text(900_000), "demo/README": text(90_000)},
}


@dataclass(frozen=True)
class Seen:
    """What was said of one distribution; `is_open` where bytes that were not read decide."""

    findings: frozenset[tuple[str, str, str, str | None]]
    verdict: str
    is_open: bool


def said(findings: tuple[Finding, ...]) -> frozenset[tuple[str, str, str, str | None]]:
    return frozenset(
        (one.rule, one.severity, one.backend, one.distribution)
        for one in findings
        if one.rule not in _NOT_OF_WHEELS
    )


def scanned(tree: Tree, backend: str) -> Seen:
    inventory = collect(tree)
    judgement = judge_for(None, (), "error", date(2026, 11, 21), ()).image(
        bare_target(backend, backend, python="3.11"), inventory, None
    )
    (verdict,) = judgement.verdicts
    return Seen(said(judgement.findings), verdict.verdict, is_open=bool(inventory.unread))


def audited(report: Report, backend: str) -> Seen:
    (verdict,) = [one for one in report.distributions if one.backend == backend]
    findings = tuple(one for one in report.findings if one.backend == backend)
    is_open = not verdict.certain or bool(report.unread)
    return Seen(said(findings), verdict.verdict, is_open)


@pytest.mark.parametrize("content", list(CONTENTS))
def test_the_same_files_are_judged_alike_wherever_they_lie(
    content: str, locked: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"demo/__init__.py": b"", **CONTENTS[content]()}
    path = locked.add("demo 1.0", files=files)
    site = tmp_path / "root" / "usr/lib/python3.11/site-packages"
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(site)
    reports = {"heads": locked.audit(*BACKENDS), "whole": locked.audit(*BACKENDS, deep=True)}
    monkeypatch.setattr("buildmatrix.locks.index.model.FLOOR", 100_000)
    reports["some"] = locked.audit(*BACKENDS)
    monkeypatch.setattr("buildmatrix.locks.index.model.FLOOR", 0)
    monkeypatch.setattr("buildmatrix.locks.index.model.PART_OF_ALL", 1 << 40)
    reports["listing"] = locked.audit(*BACKENDS)
    for backend in BACKENDS:
        with WheelTree(path) as wheel_tree:
            true = scanned(wheel_tree, backend)
        for folder in (site, tmp_path / "root"):
            with DirectoryTree(folder) as tree:
                assert scanned(tree, backend) == true, folder
        for depth, report in reports.items():
            seen = audited(report, backend)
            assert seen == true or seen.is_open, (depth, backend)
            errors = {one for one in seen.findings if one[1] == "error"}
            assert errors <= true.findings, (depth, backend)
        # A binary is found by its bytes where those may be read.
        assert audited(reports["whole"], backend) == true
        if content not in ("among many texts", "not loaded"):
            # That not all was read is the one thing that an audit says beyond that.
            heads = audited(reports["heads"], backend).findings
            assert heads >= true.findings
            assert {one[0] for one in heads - true.findings} <= {"BM902"}


def test_a_list_of_files_says_that_large_ones_with_harmless_names_were_not_opened(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.model.FLOOR", 0)
    monkeypatch.setattr("buildmatrix.locks.index.model.PART_OF_ALL", 1 << 40)
    locked.add("demo 1.0", files={"demo/__init__.py": b"", **CONTENTS["readme"]()})
    (verdict,) = locked.audit("cpu").distributions
    assert (verdict.depth, verdict.certain, verdict.may_be) == ("listing", False, "broken")
    assert "1 of 1 binary file not opened" in (verdict.open or "")


def test_what_is_text_costs_its_first_bytes_alone(locked: Locked) -> None:
    locked.add("demo 1.0", files={"demo/__init__.py": b"", "demo/data.json": noise(9_000_000)})
    report = locked.audit("cpu")
    (verdict,) = report.distributions
    assert (verdict.verdict, verdict.certain, verdict.open) == ("ok", True, None)
    # The end of the file, for each of two looks, and 1 KiB.
    assert report.stats.bytes_read < 140_000
