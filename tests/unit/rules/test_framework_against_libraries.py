"""BM706: the libraries that a framework really finds first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nodecases import on
from rulecases import SITE, codes, elf, file, image, of_image, only

from buildmatrix.inventory.model import Binary, Inventory

CUDNN = "libcudnn.so.9"


def torch(runpath: str = "$ORIGIN/../../nvidia/cudnn/lib") -> Binary:
    held = replace(elf("libtorch_cuda.so", [CUDNN]), runpath=(runpath,))
    return file("torch/lib/libtorch_cuda.so", held, "torch 2.8.0+cu128")


def cudnn(version: str) -> Binary:
    return file(f"nvidia/cudnn/lib/{CUDNN}", elf(CUDNN), f"nvidia-cudnn-cu12 {version}")


PINNED = {"torch": ["nvidia-cudnn-cu12==9.10.2.21; platform_system == 'Linux'"]}


def found(inventory: Inventory) -> list[str]:
    findings = of_image(on(runtime="12.8"), inventory)
    return [f"{item.rule} {item.severity}" for item in findings if item.rule == "BM706"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("9.1.0.70", ["BM706 error"]), ("9.10.2.21", []), ("9.19.0.56", [])],
)
def test_a_framework_and_the_cudnn_that_it_finds(version: str, expected: list[str]) -> None:
    assert found(image(torch(), cudnn(version), requires=PINNED)) == expected
    # Without pins the catalogue knows what torch 2.8 was built with.
    assert found(image(torch(), cudnn(version))) == expected


def test_the_library_of_the_base_is_found_before_that_of_the_wheel() -> None:
    old = file(f"usr/local/cudnn/{CUDNN}.1.0", elf(CUDNN))
    both = image(
        torch(),
        cudnn("9.10.2.21"),
        old,
        requires=PINNED,
        environment={"LD_LIBRARY_PATH": "/usr/local/cudnn"},
    )
    named = replace(
        both,
        binaries=tuple(
            replace(item, path=f"usr/local/cudnn/{CUDNN}") if item.path == old.path else item
            for item in both.binaries
        ),
        packaged={f"usr/local/cudnn/{CUDNN}": "libcudnn9-cuda-12 9.1.0.70-1"},
    )
    finding = only(of_image(on(runtime="12.8"), named), "BM706")
    assert "9.10.2.21" in finding.message and "libcudnn9-cuda-12" in finding.message
    assert finding.chain[-1] == f"usr/local/cudnn/{CUDNN}"
    # Nothing leads to the old one: the wheel's own is found.
    quiet = replace(named, environment={})
    assert found(quiet) == []


def test_a_runtime_that_is_older_than_the_local_version_says() -> None:
    held = replace(elf("libc10.so", ["libcudart.so.12"]), runpath=("$ORIGIN/../../nvidia/r/lib",))
    runtime = file("nvidia/r/lib/libcudart.so.12", elf("libcudart.so.12"),
                   "nvidia-cuda-runtime-cu12 12.4.127")  # fmt: skip
    binary = file("torch/lib/libc10.so", held, "torch 2.8.0+cu128")
    assert found(image(binary, runtime)) == ["BM706 warning"]
    newer = replace(runtime, owner="nvidia-cuda-runtime-cu12==12.9.79")
    assert found(image(binary, newer)) == []


def test_what_is_missing_or_of_another_line_is_said_by_others() -> None:
    assert found(image(torch(), requires=PINNED)) == []
    assert "BM302 torch" in codes(of_image(on(runtime="12.8"), image(torch())))
    assert SITE
