"""Which wheel an installer takes on a target, and what is said where it takes none."""

from __future__ import annotations

import pytest
from lock_cases import target

from buildmatrix.locks.model import Package, Wheel
from buildmatrix.locks.selection import choose_wheel, nearest_build, refusal
from buildmatrix.matrix.model import Base


def package(*filenames: str, source_only: bool = False) -> Package:
    wheels = tuple(Wheel(name, f"https://example.com/{name}", "") for name in filenames)
    return Package("torch", "2.9.0", None, wheels, source_only, ())


def chosen(*filenames: str, **changes: object) -> str | None:
    wheel = choose_wheel(package(*filenames), target(**changes))
    return wheel.filename if wheel else None


X86 = "torch-2.9.0-cp311-cp311-manylinux_2_28_x86_64.whl"
ARM = "torch-2.9.0-cp311-cp311-manylinux_2_28_aarch64.whl"
ANY = "torch-2.9.0-py3-none-any.whl"


def test_the_wheel_of_the_platform_wins_over_the_one_for_any() -> None:
    assert chosen(ANY, X86, ARM) == X86
    assert chosen(ANY, X86, ARM, platform="linux/arm64") == ARM
    assert chosen(ANY, X86, python="3.12") == ANY


def test_wheels_of_other_systems_are_never_taken() -> None:
    names = [
        "torch-2.9.0-cp311-none-macosx_11_0_arm64.whl",
        "torch-2.9.0-cp311-cp311-win_amd64.whl",
        "torch-2.9.0-cp311-cp311-musllinux_1_2_x86_64.whl",
        "torch-2.9.0-cp311t-cp311t-manylinux_2_28_x86_64.whl",
    ]
    assert chosen(*names) is None


def test_a_wheel_for_a_newer_glibc_than_the_image_has_is_not_taken() -> None:
    newer = "torch-2.9.0-cp311-cp311-manylinux_2_38_x86_64.whl"
    assert chosen(newer, base=Base("", "ubuntu:22.04")) is None
    assert chosen(newer, base=Base("", "ubuntu:24.04")) == newer


def test_the_stable_abi_serves_newer_pythons_and_no_older_ones() -> None:
    abi3 = "torch-2.9.0-cp310-abi3-manylinux2014_x86_64.whl"
    assert chosen(abi3, python="3.13") == abi3
    assert chosen(abi3, python="3.9") is None


def test_a_more_specific_tag_wins_over_a_build_number_and_a_build_number_over_none() -> None:
    plain, first, second = X86, X86.replace("-cp", "-1-cp", 1), X86.replace("-cp", "-10-cp", 1)
    assert chosen(plain, first, second) == second
    assert chosen(ANY.replace("-py3", "-99-py3"), plain) == plain


def test_a_name_that_is_none_is_passed_over() -> None:
    assert chosen("torch-latest.whl", X86) == X86


def test_source_only_and_other_platforms_are_told_apart() -> None:
    # A resolver leaves out wheels for other platforms, so there may be some.
    assert refusal(package(source_only=True), target()) == (
        "there is only its source distribution, and no wheel for linux/amd64 with Python 3.11"
    )
    assert refusal(package(), target()) == "its lock has no file of it"
    said = refusal(package(ARM, "torch-2.9.0-cp311-cp311-win_amd64.whl"), target())
    assert said is not None
    assert said.startswith("it has no wheel for linux/amd64 with Python 3.11; the nearest is for ")
    assert refusal(package(X86), target()) is None


def test_the_nearest_tags_are_those_of_the_own_machine() -> None:
    other = "torch-2.9.0-cp313-cp313-manylinux_2_28_x86_64.whl"
    said = refusal(package(ARM, "torch-2.9.0-cp311-cp311-win_amd64.whl", other), target()) or ""
    assert said.partition("the nearest is for ")[2].startswith("cp313-cp313-manylinux_2_28_x86_64")


FILES = [
    f"torch-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
    for version in ("2.5.1+rocm6.2", "2.6.0+rocm6.3", "2.6.0+cu124", "2.8.0+rocm6.4", "2.9.0")
]


@pytest.mark.parametrize(
    ("wanted", "marks", "version"),
    [
        ("2.7.0", ("rocm6.4", "rocm"), "2.6.0+rocm6.3"),
        ("2.9.0", ("rocm",), "2.8.0+rocm6.4"),
        ("2.0.0", ("rocm",), "2.5.1+rocm6.2"),
        ("2.6.0", ("cu124",), "2.6.0+cu124"),
    ],
)
def test_the_nearest_build_for_a_backend_is_the_newest_that_is_not_newer(
    wanted: str, marks: tuple[str, ...], version: str
) -> None:
    assert nearest_build(wanted, target(), FILES, marks) == version


def test_there_is_no_nearest_build_where_nothing_is_for_the_backend_or_the_python() -> None:
    assert nearest_build("2.6.0", target(), FILES, ("xpu",)) is None
    assert nearest_build("2.6.0", target(python="3.13"), FILES, ("rocm",)) is None
    assert nearest_build("2.6.0", target(), FILES, ("rocm6.22", "cu12")) is None
