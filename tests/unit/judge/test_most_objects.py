"""A few objects that were linked in make no library run: what most have is what counts.

The numbers are those of paddlepaddle-gpu 2.6.2 (libphi.so), torch 1.13.1 and tensorflow 2.21.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from nodecases import cudart, node
from rulecases import codes, elf, file, image, only, sass
from test_fit import cells
from test_partial_architecture import found, group, library, machines

from buildmatrix.catalogue.drivers import Grade
from buildmatrix.facts.elf.model import CodeGroup, DeviceCode
from buildmatrix.judge.coverage import CodeObjects, portable, prevailing

PHI = ("sm_61", "sm_70", "sm_75", "sm_80", "sm_86")
LINKED = ("sm_35", "sm_50", "sm_52", "sm_60", "sm_61", "sm_70", "sm_90")
PADDLE = (
    group(559, *PHI, size=900_000_000),
    group(1, *LINKED, size=9_000),
    group(5, *LINKED, "compute_70", "compute_80", is_relocatable=True),
)
TENSORFLOW = (
    group(1149, "sm_60", "sm_80", "sm_89", "compute_90", size=40_000_000, kernels=["Cast"]),
    group(249, "sm_60", "sm_80", "sm_89", "sm_90", "compute_90", size=200_000_000),
)


@pytest.mark.parametrize(
    ("device", "missing"), [("sm_90", True), ("sm_60", True), ("sm_80", False)]
)
def test_one_object_of_560_is_not_what_a_library_is_for(device: str, missing: bool) -> None:
    findings = found(machines(device), library("libphi.so", *PADDLE))
    assert codes(findings) == (["BM402 demo"] if missing else [])
    if missing:
        assert f"has no device code for {device}" in findings[0].message
        assert f"that for {device} in next to none of its objects" in findings[0].message
    (cell,) = cells(image(library("libphi.so", *PADDLE)), node("570.26", device))
    assert cell.state == ("refused" if missing else "ok")


def test_portable_code_of_another_library_of_the_wheel_does_not_help() -> None:
    own = library("libtorch_cuda.so", group(290, "sm_70", "sm_80"), group(1, "sm_80"))
    inside = library(
        "libtorch_cpu.so", group(1, "sm_70", "compute_70", size=600), group(3, "sm_70")
    )
    findings = found(machines("sm_90"), own, inside)
    assert codes(findings) == ["BM402 demo"]
    # As many as one in fifty are worth a look, and the driver compiles them.
    more = library("libtorch_cpu.so", group(6, "sm_70", "compute_70"), group(3, "sm_70"))
    assert codes(found(machines("sm_90"), own, more)) == ["BM403 demo", "BM404 demo"]


def test_most_objects_are_compiled_at_the_first_start() -> None:
    where = machines("sm_90")
    finding = only(found(where, library("a.so", *TENSORFLOW)), "BM403")
    assert finding.severity == "warning"
    assert finding.message.endswith("; few of its objects have some for sm_90")
    assert codes(found(where, library("a.so", *TENSORFLOW))) == ["BM403 demo"]
    assert codes(found(machines("sm_80"), library("a.so", *TENSORFLOW))) == []
    # The driver compiles little code in a second.
    small = (group(1149, "sm_80", "compute_90", size=999_999), TENSORFLOW[1])
    assert codes(found(where, library("a.so", *small))) == []


@pytest.mark.parametrize(
    ("driver", "state"), [("550.54.15", "refused"), ("555.42.02", "jit"), ("570.26", "jit")]
)
def test_an_older_driver_does_not_compile_what_most_objects_have(driver: str, state: str) -> None:
    content = (
        *sass("sm_60", "sm_80", "sm_89", "sm_90"),
        DeviceCode("nv-fatbin", "ptx", "compute_90", 1398, 9_000_000, 4096, language="8.5"),
    )
    files = image(library("a.so", *TENSORFLOW, content=content), cudart("12.5.82"))
    (cell,) = cells(files, node(driver, "sm_90"))
    assert cell.state == state
    if state == "refused":
        assert cell.reasons[0].rule == "BM702" and "PTX of toolkit 12.5" in cell.reasons[0].text
    (older,) = cells(files, node(driver, "sm_80"))
    assert older.state in ("ok", "minor-version")


def test_files_beside_libraries_are_chosen_by_what_loads_them() -> None:
    own = library("liba.so", group(290, "sm_80"), group(1, "sm_80", "sm_90", size=9_000))
    assert codes(found(machines("sm_90"), own)) == ["BM402 demo"]
    uniform = file("demo/b.so", elf(device_code=sass("sm_90", size=50_000_000)), "demo 1")
    assert codes(found(machines("sm_90"), own, uniform)) == ["BM404 demo"]


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], None),
        ([CodeObjects(("sm_80",), 98, 98), CodeObjects(("sm_90",), 2, 2)], None),
        ([CodeObjects(("sm_80",), 99, 99), CodeObjects(("sm_90",), 1, 1)], "none"),
        # Few objects with much of the code are what the library is for.
        ([CodeObjects(("sm_80",), 99, 50), CodeObjects(("sm_90",), 1, 50)], None),
        ([CodeObjects(("compute_80",), 51, 10**6), CodeObjects(("sm_90",), 49, 1)], "jit"),
        ([CodeObjects(("compute_80",), 50, 10**6), CodeObjects(("sm_90",), 50, 1)], None),
        ([CodeObjects(("sm_90",), 1, 1)], None),
    ],
)
def test_the_shares_that_count(objects: Sequence[CodeObjects], expected: Grade | None) -> None:
    assert prevailing("sm_90", objects) == expected


def test_portable_code_belongs_to_what_was_linked_from_it() -> None:
    main, linked, parts = PADDLE
    assert portable(main, PADDLE) == ()
    assert portable(linked, PADDLE) == ("compute_70", "compute_80")
    # tensorflow 2.12: parts without machine code, and NCCL that was linked from them.
    late = group(173, "compute_80", is_relocatable=True)
    nccl, others = group(1, "sm_70", "sm_80"), group(1887, "sm_70", "compute_80")
    assert portable(nccl, (nccl, others, late)) == ("compute_80",)
    assert portable(others, (nccl, others, late)) == ()
    assert isinstance(parts, CodeGroup)


@pytest.mark.parametrize(
    ("own", "device", "state"),
    [
        ("compute_80", "sm_90", "jit"),
        ("compute_80", "sm_75", "refused"),
        ("compute_100", "sm_90", "refused"),
    ],
)
def test_the_device_runtime_makes_no_kernel_native(own: str, device: str, state: str) -> None:
    """`nvcc -rdc` with PTX alone, as an H100 runs it: the toolkit's own objects are for all."""
    runtime = group(1, "compute_121", "sm_75", "sm_80", "sm_90", is_relocatable=True)
    late = library("libk.so", group(1, own, is_relocatable=True), runtime)
    (cell,) = cells(image(late), node("580.10", device))
    assert cell.state == state
