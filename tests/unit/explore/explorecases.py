"""An image in facts, for the tests of `explore`: four layers, two of them with another vendor's."""

from __future__ import annotations

from datetime import date

from buildmatrix.explore.model import Exploration
from buildmatrix.explore.views import make_exploration
from buildmatrix.facts.elf.model import DeviceCode, Elf
from buildmatrix.facts.inventory.model import (
    Binary,
    Distribution,
    Inventory,
    Layer,
    ShadowedFiles,
    Stats,
    Unread,
)
from buildmatrix.sources.model import Facts

SITE = "usr/lib/python3/site-packages"
DAY = date(2026, 11, 22)


def elf(soname: str | None = None, needed: tuple[str, ...] = (), code: int = 0) -> Elf:
    device_code = DeviceCode("nv-fatbin", "sass", "sm_90", 1, code, 4096, ".nv_fatbin")
    return Elf(
        64, True, "x86_64", "dyn", soname, needed, device_code=(device_code,) if code else ()
    )


def distribution(name: str, version: str, size: int, *requires: str) -> Distribution:
    path = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
    return Distribution(name, version, path, requires, size=size, files=3)


def image(*more: Binary) -> Inventory:
    runtime = f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"
    app = f"{SITE}/gradients/libgradients.so"
    binaries = (
        Binary(app, 90_000_000, elf("libgradients.so", ("libc.so.6",), 60_000_000),
               "gradients==2.0"),
        Binary(runtime, 700_000, elf("libcudart.so.12", ("libc.so.6",)),
               "nvidia-cuda-runtime-cu12==12.8.90"),
        Binary("lib/x86_64-linux-gnu/libc.so.6", 1_900_000, elf("libc.so.6")),
        *more,
    )  # fmt: skip
    distributions = (
        distribution("gradients", "2.0", 91_000_000, "nvidia-cuda-runtime-cu12", "plain"),
        distribution("nvidia-cuda-runtime-cu12", "12.8.90", 1_000_000),
        distribution("plain", "1.0", 5_000),
    )
    layers = (
        Layer("sha256:" + "1" * 64, "COPY / /", 30_000_000, is_base=True),
        Layer("sha256:" + "2" * 64, "RUN pip install plain old", 40_000_000, 35_000_000),
        Layer("sha256:" + "3" * 64, "RUN pip install gradients", 92_000_000),
        Layer("sha256:" + "4" * 64, "RUN rm -rf old", 0),
    )
    origins = {binaries[2].path: 0, distributions[2].path: 1}
    for path in (app, runtime, distributions[0].path, distributions[1].path):
        origins[path] = 2
    for binary in more:
        origins[binary.path] = 2
    return Inventory(
        distributions=distributions,
        binaries=binaries,
        packaged={binaries[2].path: "libc6 2.41"},
        layers=layers,
        origins=origins,
        buried=(
            ShadowedFiles(f"{SITE}/old", 12, 30_000_000, 1, 3, False, ("libold.so",)),
            ShadowedFiles("etc", 2, 4_000_000, 1, 2, True),
        ),
        unread=(Unread("opt/broken.so", "it ends in the middle of its headers"),),
        stats=Stats(files=40, binaries=len(binaries), bytes_total=123_600_000),
    )


def facts(inventory: Inventory | None = None, label: str = "oci:image") -> Facts:
    return Facts(label, inventory or image(), backend="cpu")


def exploration(
    inventory: Inventory | None = None, backend: str | None = "cpu", label: str = "oci:image"
) -> Exploration:
    given = facts(inventory, label)
    if backend is None:
        given = Facts(given.label, given.inventory)
    return make_exploration(given, backend=backend, today=DAY)


def large(count: int) -> Inventory:
    """`count` libraries of one hundred distributions."""
    distributions = tuple(distribution(f"many-{at}", "1.0", 0) for at in range(100))
    binaries = tuple(
        Binary(
            f"{SITE}/many_{at % 100}/part_{at // 1000}/lib{at:06}.so",
            10_000 + at,
            elf(f"lib{at:06}.so"),
            f"many-{at % 100}==1.0",
        )
        for at in range(count)
    )
    return Inventory(distributions=distributions, binaries=binaries)
