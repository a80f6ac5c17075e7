"""BM404: objects of a library that a GPU has no code for, where others of it have some."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rulecases import codes, elf, file, hip, image, of_image, only, sass, target

from buildmatrix.base.data import replace
from buildmatrix.facts.elf.model import CodeGroup, DeviceCode
from buildmatrix.facts.inventory.model import Binary
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import NodeClass, Position, Target


def machines(*archs: str, backend: str = "cuda") -> Target:
    node = NodeClass("nodes", backend, "", archs, {}, (), Position("buildmatrix.toml", 1))
    return replace(target(backend), node_classes=(node,))


def group(
    count: int,
    *archs: str,
    size: int = 5_000_000,
    kernels: Sequence[str] = (),
    is_relocatable: bool = False,
) -> CodeGroup:
    return CodeGroup("nv-fatbin", archs, count, size, 4096, tuple(kernels), is_relocatable)


def library(name: str, *groups: CodeGroup, content: Sequence[DeviceCode] = ()) -> Binary:
    archs = sorted({arch for group in groups for arch in group.architectures})
    codes = content or sass(*archs, size=1_000 * len(archs))
    return file(f"demo/{name}", replace(elf(device_code=codes), code_groups=groups), "demo 1")


def found(where: Target, *files: Binary) -> tuple[Finding, ...]:
    return tuple(one for one in of_image(where, image(*files)) if one.rule != "BM405")


def test_one_object_of_520_without_code_for_a_gpu_is_a_warning_with_its_kernels() -> None:
    one = only(
        found(
            machines("sm_90"),
            library(
                "libdemo.so",
                group(519, "sm_80", "sm_90"),
                group(1, "sm_80", kernels=["_ZN2at6native4fillIfEEvPT_", "plain"]),
            ),
        ),
        "BM404",
    )
    assert one.severity == "warning"
    assert one.message == (
        "1 of 520 objects in libdemo.so of demo 1 has no device code for sm_90 (node class nodes), "
        "which the others have: kernels such as at::native::fill, plain fail there with "
        "`no kernel image`"
    )


def test_what_most_objects_lack_is_named_as_well() -> None:
    files = library("a.so", group(1, "sm_75", "sm_80"), group(32, "sm_80"))
    one = only(found(machines("sm_75"), files), "BM404")
    assert one.message.startswith("32 of 33 objects in a.so of demo 1 have no device code")
    assert "kernels fail there" in one.message


def test_a_gpu_that_only_the_target_declares_makes_it_a_note() -> None:
    files = library("a.so", group(9, "sm_80", "sm_90"), group(1, "sm_80"))
    assert only(found(target("cuda", archs=["sm_90"]), files), "BM404").severity == "note"


def test_all_files_of_a_distribution_are_one_finding_about_the_worst() -> None:
    one = only(
        found(
            machines("sm_90", "sm_120"),
            library("a.so", group(9, "sm_80", "sm_90", "compute_90"), group(1, "sm_80")),
            library("b.so", group(9, "sm_80", "sm_90", "compute_90"), group(4, "sm_80")),
            library("c.so", group(9, "sm_80", "sm_90"), group(4, "sm_90")),
        ),
        "BM404",
    )
    assert one.message.startswith("4 of 13 objects in b.so of demo 1")
    assert "sm_90 (node class nodes), sm_120 (node class nodes)" in one.message
    assert one.message.endswith("; 1 other file of it likewise")
    assert [item.path.rpartition("/")[2] for item in one.evidence] == ["a.so", "b.so"]


def test_objects_with_portable_code_alone_are_a_note_from_a_megabyte_on() -> None:
    most = group(1149, "sm_80", "sm_90", "compute_90")
    late = group(249, "sm_80", "compute_90", kernels=["Cast"])
    where = machines("sm_90")
    one = only(found(where, library("a.so", most, late)), "BM404")
    assert one.severity == "note"
    assert "have no binary code for sm_90" in one.message
    assert "the driver compiles kernels such as Cast when they are first used" in one.message
    assert found(where, library("a.so", most, replace(late, size=999_999))) == ()


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([group(9, "sm_80", "sm_90"), group(1, "sm_90")], id="both serve"),
        pytest.param([group(9, "sm_90"), group(20, "sm_100f")], id="for another family"),
        pytest.param([group(9, "sm_90"), group(2, "sm_100a", "sm_103a")], id="for exact GPUs"),
        pytest.param([group(9, "sm_90"), group(9, "sm_80", is_relocatable=True)], id="linked"),
        pytest.param([group(9, "sm_90"), group(9)], id="not compared"),
    ],
)
def test_what_is_so_on_purpose_stays_quiet(groups: Sequence[CodeGroup]) -> None:
    assert found(machines("sm_90"), library("a.so", *groups)) == ()


def test_what_was_linked_can_still_be_compiled_from_its_objects() -> None:
    files = library(
        "a.so",
        group(1, "sm_80"),
        group(6, "sm_80", "compute_80", is_relocatable=True),
        group(3, "sm_80", "compute_80"),
    )
    assert codes(found(machines("sm_90"), files)) == ["BM403 demo"]


def test_a_gpu_that_no_object_has_code_for_is_another_rule() -> None:
    files = library("a.so", group(9, "sm_80", "sm_90"), group(1, "sm_80"))
    assert codes(found(machines("sm_120"), files)) == ["BM402 demo"]


def test_groups_of_another_backend_are_not_compared() -> None:
    files = library(
        "a.so",
        group(9, "gfx942", "gfx90a"),
        group(1, "gfx90a"),
        content=(*hip("gfx942", "gfx90a"), *sass("sm_90")),
    )
    assert "BM404" not in [one.rule for one in found(machines("sm_90"), files)]
    where = machines("gfx942", backend="rocm")
    assert "1 of 10 objects" in only(found(where, files), "BM404").message


def test_a_target_without_gpus_asks_for_none() -> None:
    files = library("a.so", group(9, "sm_80", "sm_90"), group(1, "sm_80"))
    assert found(target("cuda"), files) == ()
