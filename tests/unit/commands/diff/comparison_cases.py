"""Small trees, locks and targets as sides of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from buildmatrix.base.data import replace as changed
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.commands.diff import compare
from buildmatrix.commands.diff_contents import Side
from buildmatrix.commands.diff_sources import add_facts
from buildmatrix.facts.elf.model import DeviceCode, Elf
from buildmatrix.facts.inventory.model import Binary, Distribution, Inventory, Layer, Stats
from buildmatrix.judge.model import Finding, Severity, Verdict, VerdictName
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.matrix.model import Target, bare_target
from buildmatrix.reports.diff import Comparison, Kind

SITE = "opt/venv/lib/python3.11/site-packages"


def installed(line: str, *, size: int = 1000, record: str | None = None) -> Distribution:
    """`installed("torch 2.9.0+cpu")`"""
    name, version = line.split()
    folder = f"{SITE}/{name}-{version}.dist-info"
    return Distribution(name, version, folder, size=size, record=record)


def library(
    path: str,
    owner: str | None = None,
    *,
    soname: str | None = None,
    size: int = 1000,
    build_id: str | None = None,
    archs: Sequence[str] = (),
    read: int | None = None,
) -> Binary:
    """A shared library; with an owner (`name version`) its path is seen from site-packages."""
    code = tuple(
        DeviceCode("nv-fatbin", "sass", arch, 1, 100, 4096, ".nv_fatbin") for arch in archs
    )
    elf = Elf(
        64, True, "x86_64", "dyn", soname=soname, build_id=build_id, device_code=code, read=read
    )
    if owner is None:
        return Binary(path, size, elf)
    return Binary(f"{SITE}/{path}", size, elf, owner.replace(" ", "=="))


def tree(
    *distributions: Distribution,
    files: Sequence[Binary] = (),
    layers: Sequence[Layer] = (),
    environment: Mapping[str, str] | None = None,
    size: int = 0,
) -> Inventory:
    return Inventory(
        distributions=distributions,
        binaries=tuple(files),
        layers=tuple(layers),
        environment=environment or {},
        stats=Stats(bytes_total=size),
    )


def side(inventory: Inventory, kind: Kind = "image", source: str = "docker:demo:1") -> Side:
    facts = add_facts(Side(source, kind), inventory, evidence(inventory, load()))
    return changed(facts, vendors=None)


def difference(before: Inventory, after: Inventory, kind: Kind = "image") -> Comparison:
    return compare(side(before, kind, "docker:demo:1"), side(after, kind, "docker:demo:2"))


def finding(
    fingerprint: str,
    severity: Severity = "error",
    *,
    target: str = "docker:demo:1",
    distribution: str = "xgboost",
    waived: str | None = None,
) -> Finding:
    return Finding(
        rule="BM401",
        name="foreign-device-code",
        severity=severity,
        target=target,
        backend="cpu",
        vendor="nvidia",
        message=f"{distribution} holds code for NVIDIA CUDA",
        distribution=distribution,
        version="3.2.0",
        waived=waived,
        fingerprint=fingerprint.rjust(32, "0"),
    )


def verdict(line: str, what: VerdictName, backend: str = "cpu") -> Verdict:
    name, version = line.split()
    return Verdict(name, version, backend, what, f"it is {what}", foreign_bytes=10)


def judged(
    *findings: Finding,
    verdicts: Sequence[Verdict] = (),
    targets: Mapping[str, str] | None = None,
    source: str = "report:a.json",
) -> Side:
    return Side(
        source,
        "report",
        targets={"docker:demo:1": "cpu"} if targets is None else targets,
        findings=findings,
        verdicts=tuple(verdicts),
    )


def target(
    id: str, *, python: str = "3.11", torch: str | None = None, replace: str | None = None
) -> Target:
    """`target("cuda12.8-a")`; `replace` is `original=twin`."""
    backend = id.split("-")[0].rstrip("0123456789.")
    one = bare_target(id, backend, python=python)
    swapped = dict([replace.split("=", 1)]) if replace else {}
    return changed(one, torch=torch, replace=swapped)


def pin(line: str, via: str = "base.in:1", *, index: str | None = None) -> Package:
    name, version = line.split()
    filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    wheel = Wheel(filename, f"https://wheels.example.com/{filename}", "0" * 64, 10)
    return Package(name, version, index, (wheel,), False, tuple(sorted(via.split(","))))


def lock(*packages: Package) -> Lock:
    return Lock(Path("pylock.toml"), packages, "", "sha256:0")
