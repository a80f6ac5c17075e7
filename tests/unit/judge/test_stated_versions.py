"""What frameworks say in their own files of the versions that they were built with."""

from __future__ import annotations

import pytest
from nodecases import node, on
from rulecases import SITE, elf, file, image, of_image
from test_fit import cells

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Binary, Inventory, Statements
from buildmatrix.judge.model import Finding

TENSORFLOW = file("tensorflow/libtensorflow_cc.so.2", elf(), "tensorflow 2.12.0")
BUILD_INFO = "tensorflow/python/platform/build_info.py"


def says(inventory: Inventory, path: str, owner: str, **values: str) -> Inventory:
    texts = {name: (text,) for name, text in values.items()}
    return replace(inventory, statements=(Statements(f"{SITE}/{path}", texts, owner),))


def tensorflow(*files: Binary, cuda: str = "11.8", cudnn: str = "8") -> Inventory:
    return says(
        image(TENSORFLOW, *files),
        BUILD_INFO,
        "tensorflow==2.12.0",
        cuda_version=cuda,
        cudnn_version=cudnn,
    )


def library(soname: str, owner: str) -> Binary:
    return file(f"nvidia/lib/{soname}", elf(soname), owner)


def judged(inventory: Inventory) -> list[Finding]:
    findings = of_image(on(runtime="12.8"), inventory)
    return [finding for finding in findings if finding.rule == "BM706"]


CUDNN_8 = library("libcudnn.so.8", "nvidia-cudnn-cu12 8.9.7.29")
CUDNN_9 = library("libcudnn.so.9", "nvidia-cudnn-cu12 9.10.2.21")


def test_a_framework_that_opens_cudnn_8_and_finds_another_line_alone() -> None:
    (finding,) = judged(tensorflow(CUDNN_9))
    assert finding.severity == "error" and finding.distribution == "tensorflow"
    assert "built with libcudnn 8" in finding.message and "libcudnn.so.9" in finding.message
    assert judged(tensorflow(CUDNN_8)) == []
    # One of both lines is the one that it opens.
    assert judged(tensorflow(CUDNN_8, CUDNN_9)) == []
    # Without any copy it runs without a GPU, and BM302 is about what is missing.
    assert judged(tensorflow()) == []


def test_the_runtime_of_another_line_is_a_warning() -> None:
    cudart = library("libcudart.so.12", "nvidia-cuda-runtime-cu12 12.8.90")
    (finding,) = judged(tensorflow(cudart))
    assert finding.severity == "warning" and "libcudart 11.8" in finding.message
    old = library("libcudart.so.11.0", "nvidia-cuda-runtime-cu11 11.8.89")
    assert judged(tensorflow(old)) == []


def test_statements_of_another_distribution_or_file_say_nothing() -> None:
    inventory = image(TENSORFLOW, CUDNN_9)
    assert judged(says(inventory, BUILD_INFO, "other==1.0", cudnn_version="8")) == []
    assert judged(says(inventory, "a/build_info.py", "tensorflow==2.12.0", cudnn_version="8")) == []
    assert judged(says(inventory, BUILD_INFO, "tensorflow==2.12.0", cudnn_version="no")) == []


def test_metadata_says_it_better_than_a_file() -> None:
    inventory = tensorflow(CUDNN_9)
    other, installed = sorted(inventory.distributions, key=lambda item: item.name)
    asking = replace(installed, requires=("nvidia-cudnn-cu12>=9.3",))
    assert judged(replace(inventory, distributions=(asking, other))) == []


def test_the_first_numbers_of_a_linked_runtime_are_compared() -> None:
    held = replace(elf("libtorch.so", ["libcudart.so.12"]), runpath=("$ORIGIN/../../nvidia/lib",))
    torch = file("torch/lib/libtorch.so", held, "torch 2.6.0")
    runtime = library("libcudart.so.12", "nvidia-cuda-runtime-cu12 12.1.105")
    inventory = says(image(torch, runtime), "torch/version.py", "torch==2.6.0", cuda="12.4")
    (finding,) = judged(inventory)
    assert "torch/version.py says cuda 12.4" in finding.message
    assert judged(image(torch, runtime)) == []


@pytest.mark.parametrize(
    ("driver", "state"),
    [("450.80.02", "refused"), ("535.54.03", "minor-version"), ("560.28.03", "ok")],
)
def test_the_runtime_inside_of_a_framework_is_the_one_that_its_file_says(
    driver: str, state: str
) -> None:
    marks = ["cudart-shared-memory", "cudart-error-string"]
    inner = file("tensorflow/_xla_ops.so", elf("_xla_ops.so", marks=marks), "tensorflow 2.21.0")
    inventory = says(image(inner), BUILD_INFO, "tensorflow==2.21.0", cuda_version="12.5.1")
    (cell,) = cells(inventory, node(driver, "sm_90"))
    assert cell.state == state
    (unsaid,) = cells(image(inner), node(driver, "sm_90"))
    assert unsaid.state == "undecided"


@pytest.mark.parametrize(
    ("backend", "name", "beside", "line", "good", "bad"),
    [
        ("cuda", "jax", "jaxlib", "jaxlib<=0.10.2,>=0.10.0", "0.10.0", "0.9.2"),
        ("cuda", "jax", "jaxlib", "jaxlib<=0.10.2,>=0.10.0", "0.10.2", "0.11.0"),
        ("cuda", "jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda12-pjrt==0.9.2", "0.9.2", "0.12"),
        ("rocm", "jax-rocm7-plugin", "jax-rocm7-pjrt", "jax-rocm7-pjrt ==0.9.2", "0.9.2", "0.12.0"),
        (
            "rocm",
            "jax-rocm60-plugin",
            "jax-rocm60-pjrt",
            "jax-rocm60-pjrt ==0.5",
            "0.5.0",
            "0.4.35",
        ),
    ],
)
def test_versions_that_metadata_ask_for(
    backend: str, name: str, beside: str, line: str, good: str, bad: str
) -> None:
    def found(version: str, *requires: str) -> list[Finding]:
        installed = [f"{name} 0.10.2", f"{beside} {version}"]
        inventory = image(installed=installed, requires={name: requires})
        findings = of_image(on(runtime="12.8", backend=backend), inventory)
        return [finding for finding in findings if finding.rule == "BM706"]

    assert found(good, line) == []
    (finding,) = found(bad, "other>=3", line)
    assert finding.severity == "error" and beside in finding.message and finding.fix is not None
    # A version that nobody can compare, and metadata that ask for none.
    assert found("unknown", line) == found(bad, beside) == found(bad) == []
