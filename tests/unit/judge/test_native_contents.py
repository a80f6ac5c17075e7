"""What lies inside of distributions: vendors' libraries by their bytes, and what SBOMs name."""

from __future__ import annotations

from rulecases import SITE, elf, file, image, lock, pin, sass, target

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.composition import DistributionBytes
from buildmatrix.judge.judging import judge_image
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Policy

CUDART = "demo.libs/libcudart-9335f6a2.so.12.8.57"
KERNELS = "demo/kernels.so"


def parts(inventory: Inventory, locked: Lock | None = None) -> dict[str, DistributionBytes]:
    seen = evidence(inventory, load())
    judgement = judge_image(target("cpu"), inventory, seen, locked, load(), Policy())
    assert judgement.composition is not None
    return {part.name: part for part in judgement.composition.distributions}


def with_sbom(inventory: Inventory, *purls: str) -> Inventory:
    return replace(
        inventory,
        distributions=tuple(replace(one, components=purls) for one in inventory.distributions),
    )


def demo(*purls: str) -> Inventory:
    cudart = file(CUDART, elf(soname="libcudart-9335f6a2.so.12"), "demo==1.0", 700_000)
    kernels = file(KERNELS, elf(device_code=sass("sm_80")), "demo==1.0")
    return with_sbom(image(cudart, kernels), *purls)


def test_a_vendor_s_library_has_its_soname_version_and_evidence() -> None:
    library, kernels = parts(demo())["demo"].libraries
    assert (library.path, library.vendor, library.role) == (f"{SITE}/{CUDART}", "nvidia", "runtime")
    assert (library.soname, library.version) == ("libcudart-9335f6a2.so.12", "12.8.57")
    assert library.kinds == ("bundled",)
    assert library.size == 700_000
    assert library.in_sbom is None, "it has no SBOM"
    assert kernels.kinds == ("device-code",)
    assert kernels.architectures == ("sm_80",)
    assert kernels.version == ""


def test_a_library_that_the_sbom_lacks_and_a_package_that_the_bytes_lack() -> None:
    part = parts(
        demo(
            "pkg:pypi/demo@1.0",
            "pkg:rpm/almalinux/libgomp@8.5.0-26.el8",
            "pkg:cargo/serde@1.0",
            "pkg:rpm/kernels-libs@1",
        )
    )["demo"]
    assert {one.purl: one.seen for one in part.sbom} == {
        "pkg:rpm/almalinux/libgomp@8.5.0-26.el8": False,
        "pkg:cargo/serde@1.0": None,
        "pkg:rpm/kernels-libs@1": True,
    }
    assert [one.in_sbom for one in part.libraries] == [False, True]


def test_a_library_that_the_sbom_names() -> None:
    part = parts(demo("pkg:generic/nvidia/cuda-cudart@12.8.57"))["demo"]
    assert part.libraries[0].in_sbom is True
    assert part.sbom[0].seen is True


def test_what_may_be_linked_into_a_library_needs_no_file() -> None:
    """cryptography's wheel names `openssl`, and links it statically."""
    (part,) = parts(demo("pkg:generic/openssl@3.5.0"))["demo"].sbom
    assert part.seen is None


def test_a_package_of_a_variant_is_known_by_its_first_word() -> None:
    blas = file("demo.libs/libopenblasp-r0-39a31c03.2.18.so", elf(), "demo==1.0")
    inventory = with_sbom(image(blas), "pkg:rpm/openblas-threads@0.3", "pkg:rpm/blas-threads@1")
    assert [one.seen for one in parts(inventory)["demo"].sbom] == [True, False]


def test_hostile_package_urls_are_no_more_than_names() -> None:
    purls = ("pkg:", "pkg:rpm/", "pkg:rpm/%00@1", "pkg:rpm/" + "a" * 2000, "pkg:rpm/ab?#", "pkg:x/")
    part = parts(demo(*purls))["demo"]
    assert [one.seen for one in part.sbom] == [None, None, None, False, False, None]


def test_what_belongs_to_no_distribution_is_listed_under_no_name() -> None:
    path = "usr/local/cuda/lib64/libcublas.so.12"
    (library,) = parts(image(file(path, elf(soname="libcublas.so.12"))))[""].libraries
    assert (library.path, library.version) == (path, "12")


def test_who_requires_what_is_the_lock_s_or_that_of_metadata() -> None:
    inventory = image(
        installed=["demo 1.0", "numpy 2.0", "extra 1"],
        requires={"demo": ["NumPy>=2; python_version >= '3'", "extra; extra == 'x'", "demo[x]"]},
    )
    assert parts(inventory)["numpy"].required_by == ("demo",)
    assert parts(inventory)["extra"].required_by == ()
    locked = lock(pin("demo 1.0"), pin("numpy 2.0", "base.in:2,extra"), pin("extra 1", "demo"))
    known = parts(inventory, locked)
    assert known["numpy"].required_by == ("extra",)
    assert known["extra"].required_by == ("demo",)
