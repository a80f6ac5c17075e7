"""What a finding says to write cures it, as a whole and on this backend."""

from __future__ import annotations

import tomllib

import pytest
from rulecases import elf, file, image, of_image, of_lock, only, pin, target

from buildmatrix.judge.model import SpecChange
from buildmatrix.matrix.model import Policy

CUDA = target("cuda", "12.8")


@pytest.mark.parametrize("backend", ["openvino", "tpu", "npu", "neuron", "vulkan"])
def test_a_backend_without_builds_of_torch_takes_the_build_for_no_accelerator(
    backend: str,
) -> None:
    findings = of_lock(
        target(backend),
        pin("torch 2.9.1", size=900_000_000),
        pin("nvidia-cublas-cu12 12.8.4.1", "torch", size=594_000_000),
    )
    for finding in findings:
        assert finding.fix is not None
        assert finding.fix.changes == (SpecChange("torch", "torch", "cpu"),)
        assert tomllib.loads(finding.fix.patch or "") == {"backend": {backend: {"torch": "cpu"}}}
    assert {finding.rule for finding in findings} == {"BM101", "BM104"}


def test_one_paste_allows_every_library_that_a_finding_names() -> None:
    needed = [f"libmissing{number}.so.1" for number in range(7)]
    tree = image(file("demo/_C.abi3.so", elf(needed=needed), "demo 1"))
    finding = only(of_image(CUDA, tree), "BM302")
    assert finding.fix is not None and finding.fix.patch is not None
    assert all(name in finding.fix.text for name in needed)
    allowed = tomllib.loads(finding.fix.patch)["policy"]["allow-unresolved"]
    policy = Policy(allow_unresolved={name: tuple(globs) for name, globs in allowed.items()})
    assert of_image(CUDA, tree, policy) == ()
