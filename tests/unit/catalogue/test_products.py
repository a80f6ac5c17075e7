"""Products: names of devices as vendors' tools and labels spell them -> GPU architectures."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError
from buildmatrix.catalogue.datafile import read_file
from buildmatrix.catalogue.drivers import architectures, product
from buildmatrix.catalogue.load import load
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import NodeClass, Position

#: Names that were read off real machines and labels, and what the vendor says of them.
REAL = [
    # nvidia-smi, and gpu-feature-discovery, which puts dashes between the words
    ("cuda", "NVIDIA H100 80GB HBM3", "sm_90", "80GB"),
    ("cuda", "NVIDIA-H100-80GB-HBM3", "sm_90", "80GB"),
    ("cuda", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "sm_90", "80GB"),
    ("cuda", "A100-SXM4-40GB", "sm_80", "40GB"),
    ("cuda", "NVIDIA-A100-SXM4-80GB-SHARED", "sm_80", "80GB"),
    ("cuda", "NVIDIA A10", "sm_86", "24GB"),
    ("cuda", "NVIDIA A10G", "sm_86", "24GB"),
    ("cuda", "Tesla-T4", "sm_75", "16GB"),
    ("cuda", "Tesla-V100-SXM2-32GB", "sm_70", "32GB"),
    ("cuda", "NVIDIA L40S", "sm_89", "48GB"),
    ("cuda", "NVIDIA RTX 6000 Ada Generation", "sm_89", None),
    ("cuda", "NVIDIA RTX A6000", "sm_86", None),
    ("cuda", "Quadro RTX 8000", "sm_75", None),
    ("cuda", "NVIDIA GeForce RTX 3050 A Laptop GPU", "sm_89", None),
    ("cuda", "NVIDIA GeForce RTX 3050 Laptop GPU", "sm_86", None),
    ("cuda", "NVIDIA H20-3e", "sm_90", "141GB"),
    ("cuda", "NVIDIA H20", "sm_90", "96GB"),
    ("cuda", "NVIDIA B300 SXM6 AC", "sm_103", "288GB"),
    # AMD's labeller, which puts underscores between the words, and rocminfo
    ("rocm", "AMD_Instinct_MI300X_OAM", "gfx942", "192GB"),
    ("rocm", "AMD Instinct MI300X VF", "gfx942", "192GB"),
    ("rocm", "AMD_Instinct_MI325_OAM", "gfx942", "256GB"),
    ("rocm", "AMD_Radeon_780M_Graphics", "gfx1103", None),
    ("rocm", "AMD_Radeon_8060S_Graphics", "gfx1151", None),
    # Intel's rules for Node Feature Discovery, and sycl-ls
    ("oneapi", "Max_1550", "pvc", "128GB"),
    ("oneapi", "Intel(R) Data Center GPU Flex 170", "dg2", "16GB"),
    ("oneapi", "Intel(R) Arc(TM) B580 Graphics", "bmg", None),
]


@pytest.mark.parametrize(("backend", "name", "arch", "memory"), REAL)
def test_real_names_are_known(backend, name, arch, memory):
    owned = product(name, backend, load())
    assert owned is not None
    assert (owned.backend, owned.entry.architectures, owned.entry.memory) == (
        backend,
        (arch,),
        memory,
    )
    assert load().backends[backend].has_product(name)


@pytest.mark.parametrize("name", ["NVIDIA H1000", "NVIDIA A1", "H", "", "*", "NVIDIA", "MI300"])
def test_what_only_resembles_a_product_is_none(name):
    assert product(name, "cuda", load()) is None


def node(**values) -> NodeClass:
    empty = NodeClass("gpu", "cuda", "", (), {}, (), Position("buildmatrix.toml", 1))
    return replace(empty, **values)


def test_the_architectures_of_a_class_are_its_own_and_those_of_its_products():
    class_ = node(archs=("sm_90", "sm_75"), products=("Tesla-T4", "NVIDIA L4", "NVIDIA H1000"))
    assert architectures(class_, load()) == ("sm_90", "sm_75", "sm_89")
    # A backend of several vendors runs on the devices of each.
    vulkan = node(backend="vulkan", products=("Tesla-T4", "Instinct MI300X"))
    assert architectures(vulkan, load()) == ("sm_75", "gfx942")


SPEC = """\
[project]
name = "a"
version = "1"
[defaults]
requirements = ["base.in"]
python = ["3.12"]
[backend.cuda]
runtime = "12.8"
base = "nvidia/cuda:12.8.1-base-ubuntu22.04"
[node-class.h100]
backend = "cuda"
products = [
  "NVIDIA H100 PCIe",
  "PRODUCT",
]
"""


def specification(folder: Path, product_name: str):
    (folder / "base.in").write_text("numpy\n")
    path = folder / "buildmatrix.toml"
    path.write_text(SPEC.replace("PRODUCT", product_name))
    return load_spec(path, backends=lambda files: load(files).backends)


def test_products_of_a_specification_are_looked_up(tmp_path):
    spec = specification(tmp_path, "NVIDIA L4")
    assert architectures(spec.node_classes[0], load()) == ("sm_90", "sm_89")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NVIDIA H10", "no product `NVIDIA H10`; did you mean `NVIDIA H100`? If not, write its"),
        ("Foo 3000", "no product `Foo 3000`; write its `archs` instead, or describe it"),
        ("AMD_Instinct_MI300X_OAM", "is a device of the backend `rocm`, and this class is for"),
    ],
)
def test_a_product_that_cannot_be_meant_is_a_mistake_with_its_line(tmp_path, name, message):
    with pytest.raises(SpecError) as caught:
        specification(tmp_path, name)
    (problem,) = caught.value.problems
    assert problem.line == 14
    assert message in str(problem)


def test_a_data_file_of_the_user_adds_products(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        'schema = 1\nbackend = "cuda"\nvendor = "nvidia"\ntitle = "x"\nchecked = 2026-11-20\n'
        '[sources]\nus = "our lab"\n[[products]]\nnames = ["Foo 3000"]\narchitectures = ["sm_99"]\n'
        'memory = "MEMORY"\nsource = ["us"]\nbasis = "verified"\n'
    )
    with pytest.raises(SpecError, match="has the memory 'MEMORY'; write one such as `80GB`"):
        read_file(path)
    path.write_text(path.read_text().replace("MEMORY", "3TB"))
    assert architectures(node(products=("foo-3000 XL",)), load((path,))) == ("sm_99",)
    assert architectures(node(products=("foo-3000 XL",)), load()) == ()


def test_every_entry_names_architectures_that_its_backend_has_once():
    """What is written in two files would be found by luck."""
    for name, file in load().files.items():
        names = [each for entry in file.products for each in entry.names]
        assert len(names) == len(set(names)), name
