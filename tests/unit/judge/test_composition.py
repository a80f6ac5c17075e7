"""Whose the bytes of a target are: the parts add up to what other reports say."""

from __future__ import annotations

import pytest
from rulecases import SITE, elf, file, image, lock, pin, sass, target

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.inventory.model import Inventory, Layer, Stats, SystemPackage
from buildmatrix.judge.composition import Composition, VendorBytes
from buildmatrix.judge.judging import judge_image
from buildmatrix.matrix.model import Policy

MEGA = 1_000_000
LOCK = lock(
    pin("xgboost 3.0.0", "requirements.in:3"),
    pin("nvidia-nccl-cu12 2.27.3", "xgboost"),
)
XGBOOST = elf(needed=["libnccl.so.2"], device_code=sass("sm_90", size=48 * MEGA))
NCCL = elf("libnccl.so.2")
INVENTORY = image(
    file("xgboost/lib/libxgboost.so", XGBOOST, "xgboost 3.0.0", 200 * MEGA),
    file("nvidia/nccl/lib/libnccl.so.2", NCCL, "nvidia-nccl-cu12 2.27.3", 300 * MEGA),
    sizes={"xgboost": 210 * MEGA, "nvidia-nccl-cu12": 301 * MEGA},
    stats=Stats(bytes_total=1000 * MEGA),
)


def composition(backend: str, inventory: Inventory = INVENTORY) -> Composition:
    seen = evidence(inventory, load())
    made = judge_image(target(backend), inventory, seen, LOCK, load(), Policy())
    assert made.composition is not None
    wasted = {
        verdict.name: verdict.foreign_bytes if verdict.verdict != "ok" else 0
        for verdict in made.verdicts
    }
    for part in made.composition.distributions:
        assert sum(share.size for share in part.vendors) == part.size
        assert sum(share.wasted for share in part.vendors) == part.wasted
        assert sum(item.size for item in part.files) <= part.size
        assert sum(item.wasted for item in part.files) <= part.wasted
        if part.name:
            assert part.wasted == wasted[part.name]
    return made.composition


@pytest.mark.parametrize("backend", ["cpu", "rocm", "cuda"])
def test_all_bytes_are_somebodys_and_none_twice(backend: str) -> None:
    made = composition(backend)
    assert sum(part.size for part in made.distributions) == 1000 * MEGA
    assert [part.name for part in made.distributions] == ["", "nvidia-nccl-cu12", "xgboost"]


def test_what_another_vendor_holds_is_wasted_and_says_who_asked_for_it() -> None:
    _, nccl, xgboost = composition("cpu").distributions
    assert (nccl.line, nccl.asker, nccl.required_by) == (
        "requirements.in:3",
        "xgboost 3.0.0",
        ("xgboost",),
    )
    assert nccl.vendors == (VendorBytes("nvidia", 301 * MEGA, 301 * MEGA),)
    assert nccl.files[0].wasted == nccl.files[0].held == 300 * MEGA
    assert xgboost.vendors == (
        VendorBytes("", 162 * MEGA),
        VendorBytes("nvidia", 48 * MEGA, 48 * MEGA),
    )
    (library,) = xgboost.files
    assert (library.size, library.held, library.wasted) == (200 * MEGA, 48 * MEGA, 48 * MEGA)
    assert xgboost.links == ("nvidia-nccl-cu12",)


def test_on_its_own_backend_nothing_of_it_is_wasted() -> None:
    made = composition("cuda")
    assert not any(part.wasted for part in made.distributions)
    assert made.distributions[1].vendors == (VendorBytes("nvidia", 301 * MEGA),)


def test_each_layer_has_what_it_brought_and_is_wasted() -> None:
    layered = replace(
        INVENTORY,
        layers=(
            Layer("sha256:0", "ADD base", 489 * MEGA, 100, is_base=True),
            Layer("sha256:1", "RUN pip install", 511 * MEGA),
        ),
        origins={
            f"{SITE}/xgboost/lib/libxgboost.so": 1,
            f"{SITE}/nvidia_nccl_cu12-2.27.3.dist-info": 1,
        },
    )
    base, own = composition("cpu", layered).layers
    assert (base.size, base.hidden, base.wasted, base.is_base) == (489 * MEGA, 100, 0, True)
    assert (own.instruction, own.wasted) == ("RUN pip install", 349 * MEGA)


def test_what_belongs_to_no_distribution_is_wasted_where_it_is_foreign() -> None:
    driver = file("usr/local/cuda/lib64/libcudart.so.12", elf("libcudart.so.12"), size=7 * MEGA)
    inventory = image(driver, stats=Stats(bytes_total=50 * MEGA))
    (part,) = composition("cpu", inventory).distributions
    assert (part.name, part.size, part.wasted) == ("", 50 * MEGA, 7 * MEGA)
    assert [(item.path, item.vendor) for item in part.files][:1] == [(driver.path, "nvidia")]


def test_a_system_package_of_a_vendor_does_not_make_all_of_the_system_the_vendors() -> None:
    driver = file("usr/local/cuda/lib64/libcudart.so.12", elf("libcudart.so.12"), size=7 * MEGA)
    python = file("usr/bin/python3.11", elf("python3"), size=8 * MEGA)
    inventory = replace(
        image(driver, python, stats=Stats(bytes_total=50 * MEGA)),
        system_packages=(SystemPackage("cuda-cudart-12-8", "12.8.90-1"),),
        layers=(Layer("sha256:0", "ADD base", 50 * MEGA),),
        origins={driver.path: 0, python.path: 0},
    )
    made = composition("cpu", inventory)
    (part,), (layer,) = made.distributions, made.layers
    assert part.wasted == layer.wasted == 7 * MEGA
    assert {item.path: (item.vendor, item.wasted) for item in part.files} == {
        python.path: ("", 0),
        driver.path: ("nvidia", 7 * MEGA),
    }


@pytest.mark.parametrize(
    ("system", "package", "purl"),
    [
        (
            "rhel 9.4",
            SystemPackage("cuda-cudart-12-8", "1:12.8.90-1.el9", "rpm", "x86_64"),
            "pkg:rpm/rhel/cuda-cudart-12-8@12.8.90-1.el9?arch=x86_64&distro=rhel-9.4&epoch=1",
        ),
        (
            "opensuse-leap 15.6",
            SystemPackage("libstdc++6", "13~rc1^git+2-1", "rpm", "noarch"),
            "pkg:rpm/opensuse-leap/libstdc%2B%2B6@13~rc1%5Egit%2B2-1"
            "?arch=noarch&distro=opensuse-leap-15.6",
        ),
        (
            "debian 12",
            SystemPackage("zlib1g", "1:1.2.13.dfsg-1", "deb", "amd64"),
            "pkg:deb/debian/zlib1g@1:1.2.13.dfsg-1?arch=amd64&distro=debian-12",
        ),
        ("wolfi", SystemPackage("musl", "1.2.5-r0", "apk"), "pkg:apk/wolfi/musl@1.2.5-r0"),
        ("", SystemPackage("b@c?d", "1", "rpm"), "pkg:rpm/b%40c%3Fd@1"),
    ],
)
def test_system_packages_have_package_urls(system: str, package: SystemPackage, purl: str) -> None:
    from packageurl import PackageURL

    tree = replace(INVENTORY, operating_system=system, system_packages=(package,))
    (component,) = composition("cuda", tree).system or ()
    assert component.purl == purl
    read = PackageURL.from_string(purl)
    epoch = read.qualifiers.get("epoch")
    version = f"{epoch}:{read.version}" if epoch else read.version
    assert (read.name, version) == (package.name, package.version)
    assert read.to_string() == purl
