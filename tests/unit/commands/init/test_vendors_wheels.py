"""Wheels by the real names of their vendors, made here, in images of all backends."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.lookup import backend_build
from buildmatrix.commands.init import first_spec
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary, Distribution, Inventory
from buildmatrix.judge.judging import Judge
from buildmatrix.matrix.load import load_spec

CATALOGUE = load()
SITE = "opt/venv/lib/python3.11/site-packages"


def exact(glob: str) -> str:
    """A name that a glob of the catalogue stands for."""
    name = re.sub(r"(\.so)\.?\*$", r"\1.1", glob)
    return name.replace("*", "core").partition("+")[0]


def wheel(name: str, local: str, library: str, needed: tuple[str, ...] = ()) -> Inventory:
    version = f"1.0+{local}" if local else "1.0"
    owner = f"{name}=={version}"
    elf = Elf(64, True, "x86_64", "dyn", soname=library, needed=needed)
    folder = name.replace("-", "_")
    return Inventory(
        distributions=(Distribution(name, version, f"{SITE}/{folder}-{version}.dist-info"),),
        binaries=(Binary(f"{SITE}/{folder}/{library}", 9_000_000, elf, owner),),
    )


def vendors_wheel(backend: str) -> Inventory | None:
    """One that holds a library of the backend, and links what only the host has."""
    files = [file for file in CATALOGUE.files.values() if file.backend == backend]
    names = [name for file in files for origin in file.wheels for name in origin.names]
    names += [
        name
        for file in files
        for entry in file.distributions
        if entry.weight == "strong"
        for name in entry.names
    ]
    libraries = [
        name
        for file in files
        for entry in file.libraries
        if entry.weight == "strong" and entry.where != "host" and not entry.under
        for name in entry.names
    ]
    if not names or not libraries:
        return None
    name, _, local = names[0].partition("+")
    host = backend_build(CATALOGUE, backend).host_libraries
    # An extra belongs to a requirement, and not to the name.
    distribution = name.partition("[")[0].replace("*", "core").strip("-")
    needed = ("libc.so.6", *(exact(library) for library in host[:3]))
    return wheel(distribution, local.replace("*", "1"), exact(libraries[0]), needed)


#: Those that tests with real wheels are about.
REAL = ("cuda", "rocm", "oneapi", "openvino")
WHEELS = {
    name: made
    for name, entry in sorted(CATALOGUE.backends.items())
    if entry.vendor is not None
    and name not in REAL
    and backend_build(CATALOGUE, name).unbuildable is None
    and (made := vendors_wheel(name)) is not None
}
CUDA = wheel("nvidia-cuda-runtime-cu12", "", "libcudart.so.12")
#: What a base image has anyway.
LIBC = Binary(
    "lib/x86_64-linux-gnu/libc.so.6",
    1_900_000,
    Elf(64, True, "x86_64", "dyn", soname="libc.so.6"),
    None,
)


def judged(root: Path, backend: str, *wheels: Inventory) -> set[tuple[str, str | None, str | None]]:
    """Rule, vendor and distribution of what is more than a note."""
    (root / "requirements.in").write_text("")
    path = root / "buildmatrix.toml"
    path.write_text(first_spec([root / "requirements.in"], root, [backend]))
    spec = load_spec(path, backends=CATALOGUE.backends)
    image = Inventory(
        distributions=tuple(item for made in wheels for item in made.distributions),
        binaries=(*(item for made in wheels for item in made.binaries), LIBC),
    )
    findings = Judge(spec, "error", date(2026, 11, 22)).image(spec.targets[0], image, None).findings
    return {
        (finding.rule, finding.vendor, finding.distribution)
        for finding in findings
        if finding.severity != "note"
    }


def test_wheels_of_all_vendors_with_libraries_are_here() -> None:
    assert len(WHEELS) >= 22


@pytest.mark.parametrize("backend", WHEELS)
def test_a_wheel_is_no_finding_on_its_own_backend_and_one_on_cpu(
    backend: str, tmp_path: Path
) -> None:
    made = WHEELS[backend]
    vendor = CATALOGUE.backends[backend].vendor
    assert judged(tmp_path, backend, made) == set()
    assert vendor in {vendor for _, vendor, _ in judged(tmp_path, "cpu", made)}


@pytest.mark.parametrize("backend", WHEELS)
def test_a_wheel_of_another_vendor_beside_it_is_found_and_it_is_not(
    backend: str, tmp_path: Path
) -> None:
    (distribution,) = CUDA.distributions
    findings = judged(tmp_path, backend, WHEELS[backend], CUDA)
    assert {(vendor, subject) for _, vendor, subject in findings} == {("nvidia", distribution.name)}
