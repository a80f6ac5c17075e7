"""BM707: what a node class says and cannot be so."""

from __future__ import annotations

from typing import Any

import pytest
from rulecases import image, of_image, only, target

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.judge.contradictions import contradictions
from buildmatrix.matrix.model import NodeClass, Position

DIGEST = "ghcr.io/acme/a@sha256:" + "0" * 64


def node(backend: str = "cuda", **values: Any) -> NodeClass:
    empty = NodeClass("gpus", backend, "", (), {}, (), Position("buildmatrix.toml", 7))
    return replace(empty, **values)


WRONG = [
    (
        node(archs=("gfx942",)),
        ("archs", "error", "is for cuda, and its gfx942 is a device of rocm"),
    ),
    (
        node(archs=("sm_80", "gfx9999")),
        ("archs", "error", "is for cuda, and its gfx9999 is a device of rocm"),
    ),
    (
        node("rocm", archs=("compute_90",)),
        ("archs", "error", "is for rocm, and its compute_90 is a device of cuda"),
    ),
    (
        node(archs=("sm_80",), products=("NVIDIA H100 PCIe",)),
        ("archs", "warning", "has sm_80 in `archs`, and its products are sm_90"),
    ),
    (
        node(products=("NVIDIA L4",), partition="1g.10gb"),
        ("partition", "error", "has the partition 1g.10gb, and NVIDIA L4 cannot be divided"),
    ),
    (
        node(archs=("sm_75",), partition="1g.10gb"),
        ("partition", "error", "has the partition 1g.10gb, and sm_75 cannot be divided"),
    ),
    (
        node(products=("NVIDIA A30",), partition="7g.80gb"),
        (
            "partition",
            "error",
            "has the partition 7g.80gb, and NVIDIA A30 can be divided into [124]g.*gb* only",
        ),
    ),
    (
        node("rocm", products=("AMD_Instinct_MI300X_OAM",), partition="1g.10gb"),
        (
            "partition",
            "error",
            "has the partition 1g.10gb, and AMD_Instinct_MI300X_OAM can be divided into CPX*, "
            "DPX*, QPX*, SPX* only",
        ),
    ),
    (
        node(products=("NVIDIA-H100-80GB-HBM3",), memory=40 * 10**9),
        (
            "memory",
            "error",
            "has devices with 40.0 GB, and NVIDIA-H100-80GB-HBM3 has 80.0 GB",
        ),
    ),
    (
        node(resources=("amd.com/gpu",)),
        ("resources", "error", "is for cuda, and asks for amd.com/gpu of rocm"),
    ),
    (
        node(known_good=DIGEST, fall_back=DIGEST),
        (
            "fall-back",
            "warning",
            "has one image as `known-good` and `fall-back`: where it fails, nothing is left",
        ),
    ),
]


@pytest.mark.parametrize(("wrong", "expected"), WRONG)
def test_what_cannot_be_so_is_said(wrong: NodeClass, expected: tuple[str, str, str]) -> None:
    (item,) = contradictions(wrong, load())
    assert (item.key, item.severity, item.text) == expected


RIGHT = [
    node(),
    node(archs=("sm_90a",), products=("NVIDIA H100 PCIe",)),
    node(archs=("sm_90", "sm_89"), products=("NVIDIA H100 PCIe", "NVIDIA L4")),
    # Nobody knows it, and so nobody can say that it is another vendor's.
    node(archs=("xe9",)),
    node(products=("NVIDIA-H100-80GB-HBM3",), memory=81559 << 20),
    node(products=("NVIDIA B200",), memory=183359 << 20),
    node(products=("Tesla-T4",), memory=15109 << 20),
    # The memory of a part.
    node(products=("NVIDIA-H100-80GB-HBM3",), partition="1g.10gb", memory=9856 << 20),
    node(products=("NVIDIA A100-SXM4-40GB",), partition="1g.5gb+me"),
    node(products=("NVIDIA A100-SXM4-40GB",), partition="1c.3g.20gb"),
    node(products=("NVIDIA RTX 6000 Ada Generation",), memory=48 << 30),
    node("rocm", products=("Instinct MI300X",), partition="CPX/NPS4", archs=("gfx942:xnack-",)),
    node("rocm", products=("Instinct MI300X",), partition="cpx_nps4", memory=192 << 30),
    node(resources=("nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "rdma/hca", "hugepages")),
    # It runs on the devices of every vendor.
    node("vulkan", archs=("gfx942",), resources=("nvidia.com/gpu",)),
    node(known_good=DIGEST, fall_back=DIGEST.replace("0", "1")),
]


@pytest.mark.parametrize("right", RIGHT)
def test_what_can_be_so_is_quiet(right: NodeClass) -> None:
    assert list(contradictions(right, load())) == []


def test_a_finding_names_the_class_and_its_place() -> None:
    wrong = replace(target("cuda"), node_classes=(node(archs=("gfx942",)),))
    finding = only(of_image(wrong, image()), "BM707")
    assert finding.message.startswith("the node class gpus is for cuda, and its gfx942")
    assert (finding.path, finding.chain) == (
        "buildmatrix.toml",
        ("buildmatrix.toml:7", "gpus: archs"),
    )
    assert finding.severity == "error"


def test_two_contradictions_are_two_findings_that_stay_apart() -> None:
    wrong = node(archs=("gfx942",), known_good=DIGEST, fall_back=DIGEST)
    found = of_image(replace(target("cuda"), node_classes=(wrong,)), image())
    both = [item for item in found if item.rule == "BM707"]
    assert len({item.fingerprint for item in both}) == 2
