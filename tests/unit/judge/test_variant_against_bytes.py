"""BM708: what the metadata of a wheel variant promise, and what its bytes have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rulecases import codes, elf, file, hip, image, of_image, only, sass, target

from buildmatrix.base.data import replace
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Inventory, Variant
from buildmatrix.matrix.model import NodeClass, Position, Target

CUDA = target("cuda", "12.8")
ROCM = target("rocm", "7.0")
CPU = target("cpu")


def variant(*properties: str, content: Elf | None = None, name: str = "lib/a.so") -> Inventory:
    tree = image(file(f"demo/{name}", content or elf(), "demo 1"))
    (item,) = tree.distributions
    return replace(
        tree, distributions=(replace(item, variant=Variant("some", tuple(sorted(properties)))),)
    )


def on(where: Target, cpu: str = "", archs: Sequence[str] = (), name: str = "pool") -> Target:
    node = NodeClass(
        name, where.backend, "", tuple(archs), {}, (), Position("buildmatrix.toml", 1), cpu=cpu
    )
    return replace(where, node_classes=(*where.node_classes, node))


def said(where: Target, tree: Inventory) -> str:
    findings = of_image(where, tree)
    assert all(finding.severity == "error" for finding in findings if finding.rule == "BM708")
    return only(findings, "BM708").message


def is_quiet(where: Target, tree: Inventory) -> bool:
    return "BM708 demo" not in codes(of_image(where, tree))


def test_a_gpu_that_is_promised_and_has_no_code() -> None:
    tree = variant(
        "nvidia :: sm_arch :: 80_real",
        "nvidia :: sm_arch :: 90_real",
        content=elf(device_code=sass("sm_80")),
    )
    assert said(CUDA, tree) == (
        "demo 1 is the variant some: it promises nvidia :: sm_arch :: 90_real, and its device code "
        "is for sm_80"
    )


@pytest.mark.parametrize(
    ("promised", "present", "quiet"),
    [
        ("90_real", ["sm_90"], True),
        ("86_real", ["sm_80"], True),
        ("90_real", ["compute_90"], False),
        ("90_virtual", ["compute_90"], True),
        ("90_virtual", ["compute_80"], True),
        ("90_virtual", ["sm_80"], False),
        ("90a_real", ["sm_90"], True),
        # It is the same GPU.
        ("90_real", ["sm_90a"], True),
        ("90_real", ["sm_100"], False),
        ("90a_real", ["sm_90a"], True),
        ("90_real", [], True),
        ("ninety", ["sm_80"], True),
    ],
)
def test_code_for_a_gpu_of_nvidia(promised: str, present: list[str], quiet: bool) -> None:
    content = elf(device_code=sass(*present) if present else ())
    tree = variant(f"nvidia :: sm_arch :: {promised}", content=content)
    assert is_quiet(CUDA, tree) == quiet


@pytest.mark.parametrize(("present", "quiet"), [("gfx942", True), ("gfx1100", False)])
def test_code_for_a_gpu_of_amd(present: str, quiet: bool) -> None:
    tree = variant("amd :: gfx_arch :: gfx942", content=elf(device_code=hip(present)))
    assert is_quiet(ROCM, tree) == quiet


def test_code_that_was_not_read_to_its_end_proves_nothing() -> None:
    content = replace(elf(device_code=sass("sm_80")), read=4096, unread_data=1)
    assert is_quiet(CUDA, variant("nvidia :: sm_arch :: 90_real", content=content))


def test_cuda_12_promised_and_a_library_of_13_linked() -> None:
    tree = variant(
        "nvidia :: cuda_version_lower_bound :: 12.8", content=elf(needed=["libcudart.so.13"])
    )
    assert "lower_bound :: 12.8, and " in said(CUDA, tree)
    assert "libcudart.so.13, which is of NVIDIA CUDA 13" in said(CUDA, tree)


@pytest.mark.parametrize(
    ("promised", "needed", "quiet"),
    [
        ("cuda_version_lower_bound :: 12.8", "libcudart.so.12", True),
        ("cuda_version_lower_bound :: 12", "libcudart.so.12", True),
        ("cuda_version_upper_bound :: 13", "libcudart.so.12", True),
        ("cuda_version_upper_bound :: 12", "libcudart.so.12", False),
        # The same version in three toolkits.
        ("cuda_version_lower_bound :: 11.8", "libcurand.so.10", True),
    ],
)
def test_the_bounds_of_cuda(promised: str, needed: str, quiet: bool) -> None:
    tree = variant(f"nvidia :: {promised}", content=elf(needed=[needed]))
    assert is_quiet(target("cuda", "12.8"), tree) == quiet


def test_a_baseline_that_is_promised_and_avx512_that_is_needed() -> None:
    tree = variant("x86_64 :: level :: v2", content=replace(elf(), isa_needed="x86-64-v4"))
    assert "x86_64 :: level :: v2, and " in said(CPU, tree)
    assert "a.so needs x86-64-v4" in said(CPU, tree)


@pytest.mark.parametrize(
    ("promised", "needed"),
    [
        (["level :: v3"], "x86-64-v3"),
        (["level :: v3"], None),
        (["level :: v2", "avx2 :: on"], "x86-64-v3"),
        # What the catalogue does not have may ask for more.
        (["level :: v3", "avx512_bf16 :: on"], "x86-64-v4"),
    ],
)
def test_levels_that_are_promised(promised: list[str], needed: str | None) -> None:
    content = replace(elf(), isa_needed=needed)
    assert is_quiet(CPU, variant(*(f"x86_64 :: {one}" for one in promised), content=content))


@pytest.mark.parametrize(
    ("needed", "quiet"),
    [
        (["libopenblas.so.0"], True),
        (["libscipy_openblas64_-ff651d7f.so"], True),
        (["libmkl_rt.so.2"], False),
        (["libopenblas.so.0", "libmkl_rt.so.2"], True),
        (["libm.so.6"], True),
    ],
)
def test_the_library_that_is_promised(needed: list[str], quiet: bool) -> None:
    tree = variant("blas_lapack :: library :: openblas", content=elf(needed=needed))
    assert is_quiet(CPU, tree) == quiet


def test_a_variant_for_devices_of_another_vendor() -> None:
    tree = variant("nvidia :: sm_arch :: 90_real", "x86_64 :: level :: v3")
    assert said(ROCM, tree).endswith("it is for NVIDIA CUDA (nvidia :: sm_arch :: 90_real)")
    assert "it is for AMD ROCm" in said(CPU, variant("amd :: gfx_arch :: gfx942"))


def test_a_variant_that_a_node_class_does_not_support() -> None:
    old = on(on(CPU, "x86-64-v4", name="new"), "x86-64-v2", name="old")
    assert said(old, variant("x86_64 :: level :: v3")).endswith(
        "node class old does not support it: x86_64 :: level :: v3 needs x86-64-v3, and old has "
        "x86-64-v2"
    )
    assert is_quiet(on(CPU, "x86-64-v3"), variant("x86_64 :: level :: v3"))
    assert is_quiet(on(CPU), variant("x86_64 :: level :: v3"))


def test_one_value_of_a_feature_is_enough() -> None:
    tree = variant(
        "nvidia :: sm_arch :: 80_real",
        "nvidia :: sm_arch :: 120_real",
        content=elf(device_code=sass("sm_80", "sm_120")),
    )
    assert is_quiet(on(CUDA, archs=["sm_86"]), tree)
    assert "does not run on sm_90" in said(on(CUDA, archs=["sm_90"]), tree)


@pytest.mark.parametrize("properties", [[], ["foo :: bar :: baz"], ["nvidia :: foo :: 1"]])
def test_what_promises_nothing_that_is_known_is_quiet(properties: list[str]) -> None:
    assert is_quiet(on(CUDA, "x86-64", ["sm_90"]), variant(*properties))
