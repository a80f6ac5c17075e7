"""BM608 and BM609: files that their vendor's license does not let everybody pass on."""

from __future__ import annotations

import pytest
from rulecases import elf, file, image, of_image, only, target

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Artefact, Binary, ClosedFile, Inventory
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import Listed, Lists, Policy, Position

CUDA = target("cuda")
ENTRY = "LicenseRef-Not-Redistributable"


def policy(text: str = ENTRY, backend: str = "*") -> Policy:
    entry = Listed(text, Position("buildmatrix.toml", 41))
    return Policy(forbid=Lists(licenses={backend: (entry,)}))


def ours(tree: Inventory, said: Policy) -> list[Finding]:
    return [item for item in of_image(CUDA, tree, said) if item.rule in ("BM608", "BM609")]


def wheel(name: str, owner: str) -> Binary:
    return file(f"nvidia/cu13/{name}", elf(name.rpartition("/")[2]), owner)


@pytest.mark.parametrize(
    ("name", "owner", "held"),
    [
        ("lib/libcudart.so.13", "nvidia-cuda-runtime 13.5.37", False),
        ("lib/libcublasLt.so.13", "nvidia-cublas 13.1.1.3", False),
        ("lib/libnvJitLink.so.13", "nvidia-nvjitlink 13.5.37", False),
        ("lib/libnvvm.so.4", "nvidia-nvvm 13.5.37", False),
        ("lib/libcupti.so.13", "nvidia-cuda-cupti 13.5.25", False),
        ("lib/libnvperf_host.so", "nvidia-cuda-cupti 13.5.25", True),
        ("lib/libcusolver.so.12", "nvidia-cusolver 12.0.4.66", False),
        ("lib/libcusolverMg.so.12", "nvidia-cusolver 12.0.4.66", True),
        ("bin/ptxas", "nvidia-cuda-nvcc 13.5.37", True),
        ("bin/cuobjdump", "nvidia-cuda-cuobjdump 13.5.37", True),
        ("nvvm/bin/cicc", "nvidia-nvvm 13.5.37", True),
        ("lib/libcudnn_ops.so.9", "nvidia-cudnn-cu13 9.24.0.43", False),
        ("lib/libnvinfer.so.11", "tensorrt-cu13-libs 11.4.0.106", False),
        ("lib/libnvinfer_plugin.so.11", "tensorrt-cu12-libs 11.4.0.106", False),
        ("lib/libnvinfer_builder_resource.so.11.4.0", "tensorrt-cu13-libs 11.4.0.106", True),
        ("lib/libnvinfer_lean.so.11", "tensorrt-lean-cu12-libs 11.4.0.106", True),
        ("lib/libnvinfer.so.11", "tensorrt-llm 1.2.1", False),
        ("bin/ptxas", "demo 1", False),
        ("bin/ptxas", "nvidia-cuda-nvcc-tools 1", False),
    ],
)
def test_what_the_vendors_license_lists(name: str, owner: str, held: bool) -> None:
    found = ours(image(wheel(name, owner)), policy())
    assert [item.distribution for item in found if item.rule == "BM608"] == (
        [owner.split()[0]] if held else []
    )


def test_a_finding_names_the_files_the_license_and_the_line() -> None:
    owner = "nvidia-cuda-nvcc 13.5.37"
    one = only(
        of_image(CUDA, image(wheel("bin/nvcc", owner), wheel("bin/ptxas", owner)), policy()),
        "BM608",
    )
    assert one.message.startswith("nvidia-cuda-nvcc 13.5.37 brings nvcc, ptxas: the CUDA Toolkit")
    assert f"`forbid-licenses` under [policy] has `{ENTRY}` (buildmatrix.toml:41)" in one.message
    assert one.severity == "error"


def test_a_toolkit_that_its_own_installer_put_there() -> None:
    tree = image(
        file("usr/local/cuda-12.8/bin/ptxas", elf()),
        file("usr/local/cuda-12.8/nvvm/bin/cicc", elf()),
        file("usr/local/cuda-12.8/targets/x86_64-linux/lib/libcudart.so.12", elf()),
        file("usr/local/bin/ptxas", elf()),
    )
    one = only(of_image(CUDA, tree, policy()), "BM608")
    assert one.path == "usr/local/cuda-12.8/bin/ptxas"
    assert one.message.startswith("ptxas, cicc: ")


def test_archives_and_files_that_stayed_closed() -> None:
    site = "usr/lib/python3/site-packages/nvidia/cu13"
    nvcc, nvvm = "nvidia-cuda-nvcc==13.5.37", "nvidia-nvvm==13.5.37"
    tree = replace(
        image(installed=["nvidia-cuda-nvcc 13.5.37", "nvidia-nvvm 13.5.37"]),
        artefacts=(
            Artefact(f"{site}/nvvm/libdevice/libdevice.10.bc", 1, "bc", nvvm),
            Artefact(f"{site}/lib/libother.a", 1, "a", nvvm),
        ),
        closed=(ClosedFile(f"{site}/bin/ptxas", 1, nvcc), ClosedFile(f"{site}/a.py", 1, nvcc)),
    )
    assert {item.path for item in ours(tree, policy())} == {
        f"{site}/lib/libother.a",
        f"{site}/bin/ptxas",
    }


@pytest.mark.parametrize(
    "said", [Policy(), policy("LicenseRef-Not-Redistributable-2"), policy(backend="rocm")]
)
def test_nothing_is_said_where_nobody_asks(said: Policy) -> None:
    tree = image(wheel("bin/ptxas", "nvidia-cuda-nvcc 13.5.37"))
    assert [item for item in ours(tree, said) if item.rule == "BM608"] == []


def licensed(name: str, license: str) -> Inventory:
    tree = image(installed=[f"{name} 1"])
    (item,) = tree.distributions
    return replace(tree, distributions=(replace(item, license=license),))


@pytest.mark.parametrize(
    ("name", "license", "open"),
    [
        ("nvidia-cusparselt-cu13", "NVIDIA Proprietary Software", True),
        ("demo", "LicenseRef-Demo", True),
        ("nvidia-cublas", "LicenseRef-NVIDIA-Proprietary", False),
        ("mkl", "Proprietary", False),
        ("demo", "MIT", False),
        ("demo", "", False),
    ],
)
def test_terms_that_no_data_file_has_read_leave_it_open(
    name: str, license: str, open: bool
) -> None:
    found = ours(licensed(name, license), policy())
    assert [item.rule for item in found] == (["BM609"] if open else [])
    assert ours(licensed(name, license), Policy()) == []
