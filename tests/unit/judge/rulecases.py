"""Small targets, locks and images, and what the rules say about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tree_verdicts import tree_verdicts

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.elf.model import DeviceCode, Elf, Literal, Mark
from buildmatrix.facts.inventory.model import (
    Binary,
    Distribution,
    Inventory,
    Link,
    SharedPath,
    Stats,
    SystemPackage,
    Unread,
)
from buildmatrix.judge.judging import check_lock, judge_image
from buildmatrix.judge.model import Finding, Verdict
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.matrix.model import Base, Policy, Target, User

SITE = "usr/lib/python3.11/site-packages"
LIBC = Binary("usr/lib/x86_64-linux-gnu/libc.so.6", 1, Elf(64, True, "x86_64", "dyn", "libc.so.6"))


def target(
    backend: str,
    runtime: str = "any",
    *,
    platform: str = "linux/amd64",
    archs: Sequence[str] = (),
    index: Mapping[str, str] | None = None,
    torch: str | None = None,
) -> Target:
    name = backend if runtime == "any" else f"{backend}{runtime}"
    return Target(
        id=f"{name}-py311-server",
        project="demo",
        backend=backend,
        runtime=runtime,
        runtime_values={},
        python="3.11",
        variant="server",
        platform=platform,
        base=Base("base:build", "base:final"),
        requirements=("base.in",),
        extras=(),
        pyproject=None,
        replace={},
        drop=(),
        no_binary=(),
        index=index or {},
        torch=torch,
        archs=tuple(archs),
        system_packages=(),
        env={},
        labels={},
        template="cpu.Dockerfile.j2",
        copy=(),
        command=(),
        user=User(),
        image="registry.example.com/demo",
        tags=(),
        lock="locks/pylock.demo.toml",
        smoke=(),
    )


def pin(
    line: str,
    via: str = "base.in:1",
    *,
    size: int | None = None,
    index: str | None = None,
    host: str = "files.pythonhosted.org",
) -> Package:
    """`pin("torch 2.9.0", "sentence-transformers")`; several askers are split at commas."""
    name, version = line.split()
    filename = f"{name.replace('-', '_')}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
    wheel = Wheel(filename, f"https://{host}/{filename}", "0" * 64, size)
    return Package(name, version, index, (wheel,), False, tuple(sorted(via.split(","))))


def lock(*packages: Package) -> Lock:
    return Lock(Path("locks/pylock.demo.toml"), packages, "", "sha256:0")


def elf(
    soname: str | None = None,
    needed: Sequence[str] = (),
    *,
    device_code: Sequence[DeviceCode] = (),
    literals: Sequence[str] = (),
    marks: Sequence[str] = (),
) -> Elf:
    return Elf(
        64,
        True,
        "x86_64",
        "dyn",
        soname=soname,
        needed=tuple(needed),
        device_code=tuple(device_code),
        literals=tuple(Literal(text, 64, ".rodata", exact=True) for text in literals),
        marks=tuple(Mark(name, 128) for name in marks),
    )


def sass(*archs: str, size: int = 48_000_000) -> tuple[DeviceCode, ...]:
    """Entries of a CUDA fat binary: PTX for `compute_NN`, machine code for `sm_NN`."""
    return tuple(
        DeviceCode(
            "nv-fatbin",
            "ptx" if arch.startswith("compute") else "sass",
            arch,
            1,
            size // len(archs),
            4096,
            ".nv_fatbin",
        )
        for arch in archs
    )


def hip(*archs: str, size: int = 8_000_000) -> tuple[DeviceCode, ...]:
    return tuple(
        DeviceCode("hip-bundle", "amdgcn", arch, 1, size // len(archs), 4096, ".hip_fatbin")
        for arch in archs
    )


def file(path: str, content: Elf, owner: str | None = None, size: int = 1_000_000) -> Binary:
    """A binary; with an owner (`name version`) its path is relative to site-packages."""
    if owner is None:
        return Binary(path, size, content)
    return Binary(f"{SITE}/{path}", size, content, owner.replace(" ", "=="))


def image(
    *files: Binary,
    installed: Sequence[str] = (),
    requires: Mapping[str, Sequence[str]] | None = None,
    sizes: Mapping[str, int] | None = None,
    links: Sequence[Link] = (),
    packages: Sequence[SystemPackage] = (),
    shared: Sequence[SharedPath] = (),
    environment: Mapping[str, str] | None = None,
    unread: Sequence[Unread] = (),
    stats: Stats | None = None,
    root: bool = True,
) -> Inventory:
    """An inventory; owners of files are installed without being named in `installed`."""
    owners = {one.owner.replace("==", " ") for one in files if one.owner}
    names = sorted({*installed, *owners})
    distributions = tuple(
        Distribution(
            name=line.split()[0],
            version=line.split()[1],
            path=f"{SITE}/{line.replace('-', '_').replace(' ', '-')}.dist-info",
            requires=tuple((requires or {}).get(line.split()[0], ())),
            size=(sizes or {}).get(line.split()[0], 0),
        )
        for line in names
    )
    return Inventory(
        distributions=distributions,
        binaries=(*((LIBC,) if root else ()), *files),
        links=tuple(links),
        system_packages=tuple(packages),
        shared_paths=tuple(shared),
        environment=environment or {},
        unread=tuple(unread),
        stats=stats or Stats(),
    )


def of_lock(where: Target, *packages: Package) -> tuple[Finding, ...]:
    return check_lock(where, lock(*packages), load(), Policy())


def of_image(
    where: Target,
    inventory: Inventory,
    policy: Policy | None = None,
    locked: Lock | None = None,
) -> tuple[Finding, ...]:
    seen = evidence(inventory, load())
    return judge_image(where, inventory, seen, locked, load(), policy or Policy()).findings


def verdict(backend: str, inventory: Inventory, name: str) -> Verdict:
    seen = evidence(inventory, load())
    return next(
        one for one in tree_verdicts(backend, inventory, seen, Policy()) if one.name == name
    )


def codes(findings: Sequence[Finding], *severities: str) -> list[str]:
    """`BM101 nvidia-nccl-cu12`, of the given severities or all."""
    return [
        f"{one.rule} {one.distribution or ''}".rstrip()
        for one in findings
        if not severities or one.severity in severities
    ]


def only(findings: Sequence[Finding], rule: str) -> Finding:
    (one,) = [finding for finding in findings if finding.rule == rule]
    return one
