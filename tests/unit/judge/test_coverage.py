"""What the device code of an image is worth on one GPU, which the grid of node classes shows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rulecases import SITE, elf, file, hip, image, sass, target

from buildmatrix.base.data import replace
from buildmatrix.catalogue.drivers import GRADES, Grade
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.elf.model import DeviceCode
from buildmatrix.facts.inventory.model import Artefact, Binary, Inventory
from buildmatrix.judge.coverage import HolderCoverage, coverage
from buildmatrix.judge.subject import built
from buildmatrix.matrix.model import Policy


def covered(backend: str, device: str, tree: Inventory) -> tuple[HolderCoverage, ...]:
    subject = built(target(backend), tree, evidence(tree, load()), None, load(), Policy(), None, ())
    return coverage(subject, device)


def sycl(*archs: str) -> tuple[DeviceCode, ...]:
    return tuple(
        DeviceCode("offload-bundle", "spirv", arch, 1, 4_000_000, 4096, None) for arch in archs
    )


def library(name: str, codes: Sequence[DeviceCode], read: int | None = None) -> Binary:
    content = elf(device_code=codes)
    return file(f"{name}/_C.abi3.so", replace(content, read=read), f"{name} 1")


def worst(result: Sequence[HolderCoverage]) -> Grade:
    return max((item.served.grade for item in result), key=GRADES.index, default="unknown")


@pytest.mark.parametrize(
    ("backend", "device", "codes", "expected", "certain"),
    [
        ("cuda", "sm_90", sass("sm_80", "sm_90"), "native", True),
        ("cuda", "sm_103", sass("sm_100f"), "family", True),
        ("rocm", "gfx1102", hip("gfx11-generic"), "generic", True),
        ("cuda", "sm_120", sass("sm_90", "compute_90"), "jit", True),
        ("cuda", "sm_120", sass("sm_90"), "none", True),
        ("oneapi", "pvc", sycl("spir64"), "jit", True),
        ("oneapi", "pvc", sycl("spir64", "spir64_gen"), "jit", False),
        ("oneapi", "pvc", sycl("spir64_gen"), "unknown", False),
    ],
)
def test_an_image_is_graded_by_its_code(
    backend: str, device: str, codes: Sequence[DeviceCode], expected: str, certain: bool
) -> None:
    result = covered(backend, device, image(library("demo", codes)))
    assert worst(result) == expected
    (holder,) = result
    assert (holder.served.grade, holder.served.is_certain) == (expected, certain)
    assert holder.holder.owner == "demo==1"


def test_of_its_holders_the_worst_counts_and_of_their_files_the_best() -> None:
    tree = image(
        library("good", sass("sm_90")),
        library("split", sass("sm_80")),
        file("split/_D.abi3.so", elf(device_code=sass("sm_90")), "split 1"),
        library("late", sass("compute_80")),
    )
    result = covered("cuda", "sm_90", tree)
    assert worst(result) == "jit"
    assert [item.holder.owner for item in result if item.served.grade == "native"] == [
        "good==1",
        "split==1",
    ]
    split = result[-1]
    assert [file.grade for file in split.files] == ["none", "native"]


@pytest.mark.parametrize(("read", "expected"), [(None, "none"), (9, "unknown")])
def test_code_that_was_not_read_may_be_for_any_gpu(read: int | None, expected: str) -> None:
    assert worst(covered("cuda", "sm_120", image(library("a", sass("sm_90"), read)))) == expected


def test_a_piece_that_names_no_gpu_leaves_it_unknown_unless_others_serve_it() -> None:
    odd = DeviceCode("nv-fatbin", "unknown", None, 1, 4096, 0, ".nv_fatbin", "not known")
    tree = image(library("demo", (*sass("sm_80"), odd)))
    assert worst(covered("cuda", "sm_120", tree)) == "unknown"
    assert worst(covered("cuda", "sm_80", tree)) == "native"


def test_an_image_without_device_code_is_unknown_and_foreign_code_is_none_of_it() -> None:
    assert covered("cuda", "sm_90", image()) == ()
    result = covered("cuda", "sm_90", image(library("demo", hip("gfx942"))))
    assert result == ()


def test_files_that_no_distribution_owns_are_named_by_their_package_or_their_path() -> None:
    own = Artefact("app/kernels.fatbin", 9000, "fatbin", None, sass("sm_80"))
    single = Artefact("app/kernel.cubin", 9000, "cubin", None, sass("sm_80"))  # BM606's
    archive = Artefact(f"{SITE}/demo/kernels.a", 9000, "a", "demo==1", sass("sm_50"))
    base = file("usr/lib/libcublas.so.12", elf("libcublas.so.12", device_code=sass("sm_90")))
    tree = replace(
        image(base), artefacts=(own, single, archive), packaged={base.path: "libcublas-12-4 12.4.5"}
    )
    result = covered("cuda", "sm_90", tree)
    assert [(item.holder.name, item.served.grade) for item in result] == [
        ("app/kernels.fatbin", "none"),
        ("libcublas-12-4 12.4.5", "native"),
    ]


def test_code_for_linkers_serves_no_gpu_and_leaves_nothing_unknown() -> None:
    ltoir = DeviceCode("nv-fatbin", "lto-ir", "compute_75", 1, 4096, 0, ".nv_fatbin")
    bare = DeviceCode("ltoir", "lto-ir", None, 1, 4096, 0)
    tree = replace(
        image(library("demo", (*sass("sm_80"), ltoir))),
        artefacts=(Artefact(f"{SITE}/demo/device.ltoir", 4096, "ltoir", "demo==1", (bare,)),),
    )
    result = covered("cuda", "sm_90", tree)
    assert worst(result) == "none"
    assert [file.path for file in result[0].holder.files] == [f"{SITE}/demo/_C.abi3.so"]
