"""Symbols, versions and SONAMEs across the wheels of a lock, from parts of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_index import Locked, noise
from elf_images import Image, Part

from buildmatrix.base.data import replace
from buildmatrix.facts import loader_binding
from buildmatrix.facts.inventory.model import Stats
from buildmatrix.reports.run import Report, exit_code

LINK = "libnvJitLink.so.12"
OLD, NEW = "__nvJitLinkCreate_12_1", "__nvJitLinkCreate_12_8"
SPARSE, LINKER = "nvidia-cusparse-cu12", "nvidia-nvjitlink-cu12"
#: More than a beginning and an end of a library have together.
MUCH = 3_000_000


def library(soname: str, image: Image, size: int = MUCH) -> bytes:
    parts = (Part(".text", noise(size), flags=6),)
    strings = {14: soname, 29: "$ORIGIN/../../nvjitlink/lib"}
    return replace(image, strings=strings, parts=parts, dynamic_last=True).build()


def sparse(size: int = MUCH) -> bytes:
    image = Image(needed=(LINK,), undefined=((NEW, LINK, LINK),))
    return library("libcusparse.so.12", image, size)


def linker(*defined: str, size: int = MUCH) -> bytes:
    return library(LINK, Image(defined=defined, versions=(LINK,)), size)


def add_pair(
    locked: Locked, *defined: str, line: str = LINKER, version: str = "12.1.105", size: int = MUCH
) -> None:
    locked.add(
        f"{SPARSE} 12.5.8",
        files={"nvidia/cusparse/lib/libcusparse.so.12": sparse(size)},
        requires=[line],
    )
    locked.add(
        f"{LINKER} {version}", files={f"nvidia/nvjitlink/lib/{LINK}": linker(*defined, size=size)}
    )


def said(report: Report) -> list[str]:
    return [item.message for item in report.findings if item.rule == "BM305"]


@pytest.mark.parametrize("size", [50_000, MUCH])
def test_a_symbol_that_the_locked_library_lacks(locked: Locked, tmp_path: Path, size: int) -> None:
    add_pair(locked, OLD, size=size)
    cold = locked.audit("cuda", "cpu", cache=tmp_path / "cache")
    # On other backends it is unused anyway, and nothing of it is read.
    (first,) = said(cold)
    for text in (NEW, f"{SPARSE} 12.5.8", f"nvidia/nvjitlink/lib/{LINK}", f"{LINKER} 12.1.105"):
        assert text in first
    assert exit_code(cold) == 1
    warm = locked.audit("cuda", "cpu", cache=tmp_path / "cache")
    assert warm.stats.bytes_read == 0
    assert replace(warm, stats=Stats(), targets=()) == replace(cold, stats=Stats(), targets=())
    if size == MUCH:
        # The end of each, as far as it takes to get to the dynamic section, and its beginning.
        assert cold.stats.bytes_read < 1_000_000
    assert len(said(locked.audit("cuda", "cpu", deep=True))) == 2


@pytest.mark.parametrize("defined", [(OLD, NEW)])
def test_a_library_that_has_the_symbol_is_fine(locked: Locked, defined: tuple[str, ...]) -> None:
    add_pair(locked, *defined)
    report = locked.audit("cuda")
    assert (said(report), exit_code(report)) == ([], 0)


def test_symbols_are_bound_once(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = []
    bind = loader_binding._Binder.find_unbound

    def count(binder: Any, objects: Any = None) -> Iterator[loader_binding.Unbound]:
        bound.extend([binder] if objects is None else [])
        return bind(binder, objects)

    monkeypatch.setattr(loader_binding._Binder, "find_unbound", count)
    add_pair(locked, OLD, size=50_000)
    assert len(said(locked.audit("cuda"))) == 1
    # Before and after the tables of both were read.
    assert len(bound) == 2


def test_who_pins_both_vouches_for_them_and_nothing_is_read(locked: Locked) -> None:
    add_pair(locked, OLD)
    locked.add("demo 1.0", requires=[f"{SPARSE}==12.5.8", f"{LINKER}==12.1.105"])
    report = locked.audit("cuda")
    assert said(report) == []
    assert report.stats.bytes_read < 150_000
    locked.packages.pop()
    locked.add("demo 1.0", requires=[f"{SPARSE}==12.5.8.*", "toolkit==1.0"])
    locked.add("toolkit 1.0", requires=[f"{LINKER}==12.1.105.*"])
    assert said(locked.audit("cuda")) == []
    locked.packages.pop()
    # A pin that the lock does not have vouches for nothing.
    locked.packages.pop()
    locked.add("demo 2.0", requires=[f"{SPARSE}==12.5.8", f"{LINKER}==12.8.93"])
    assert len(said(locked.audit("cuda"))) == 1


def test_a_lock_that_requires_another_major_of_a_library(locked: Locked) -> None:
    for version in (8, 9):
        name = f"libsycl.so.{version}"
        locked.packages.clear()
        binary = Image(needed=("libsycl.so.8",), strings={14: "libdemo.so"}).build()
        locked.add("dpctl 0.20.2", files={"dpctl/_x.so": binary}, requires=["intel-sycl-rt"])
        data = {f"intel_sycl_rt-2026.data/data/lib/{name}": library(name, Image(), 400_000)}
        locked.add("intel-sycl-rt 2026.0", files=data)
        report = locked.audit("oneapi")
        messages = [item.message for item in report.findings if item.rule == "BM302"]
        assert bool(messages) == (version == 9)
        assert not messages or (
            "links libsycl.so.8" in messages[0]
            and "intel-sycl-rt 2026.0 has libsycl.so.9" in messages[0]
        )


@pytest.mark.parametrize(
    ("version", "expected"), [("9.1.0.70", ["BM706"]), ("9.8.0.87", []), ("8.9.7.29", [])]
)
def test_a_plugin_that_opens_an_older_library_than_it_asks_for(
    locked: Locked, version: str, expected: list[str]
) -> None:
    locked.add(
        "jax-cuda12-plugin 0.6.2",
        requires=['nvidia-cudnn-cu12<10.0,>=9.8; extra == "with-cuda"'],
    )
    soname = f"libcudnn.so.{version[0]}"
    files = {f"nvidia/cudnn/lib/{soname}": library(soname, Image(), 400_000)}
    locked.add(f"nvidia-cudnn-cu12 {version}", files=files)
    report = locked.audit("cuda")
    assert [item.rule for item in report.findings if item.rule == "BM706"] == expected


@pytest.mark.parametrize(("version", "expected"), [("9.5.1.17", 1), ("8.9.7.29", 0)])
def test_a_bundled_library_that_opens_what_the_set_lacks(
    locked: Locked, version: str, expected: int
) -> None:
    part = "libcudnn_ops_infer.so.8"
    shim = replace(
        Image(strings={14: "libcudnn-463fd6d5.so.8.9.7"}),
        parts=(Part(".rodata", f"\0{part}\0".encode()), Part(".text", noise(1000), flags=6)),
    )
    locked.add("ctranslate2 4.4.0", files={
        "ctranslate2.libs/libcudnn-463fd6d5.so.8.9.7": shim.build()
    })  # fmt: skip
    names = [f"libcudnn.so.{version[0]}", *([part] if version[0] == "8" else [])]
    files = {f"nvidia/cudnn/lib/{name}": library(name, Image(), 400_000) for name in names}
    locked.add(f"nvidia-cudnn-cu12 {version}", files=files)
    found = [item for item in locked.audit("cuda").findings if item.rule == "BM706"]
    assert len(found) == expected
    assert not found or (part in found[0].message and "libcudnn.so.9" in found[0].message)
