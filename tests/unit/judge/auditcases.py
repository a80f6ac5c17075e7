"""Wheels of a lock, read as deep as a test wants, and what an audit says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rulecases import file, image, lock
from tree_verdicts import tree_verdicts

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary, ClosedFile, Inventory, SharedPath
from buildmatrix.judge.certainty import Gain, gains
from buildmatrix.judge.judging import judge_wheels
from buildmatrix.judge.locks import Wheels, wheels
from buildmatrix.judge.model import Finding, Verdict
from buildmatrix.judge.verdicts import pass_through_requirements
from buildmatrix.locks.model import Package, Staleness
from buildmatrix.matrix.model import Policy, Target


def closed(path: str, owner: str, size: int = 1_000_000) -> ClosedFile:
    """A file of which only name and size are known; `owner` is `name version`."""
    return ClosedFile(path, size, owner.replace(" ", "=="))


def opened(path: str, content: Elf, owner: str, size: int = 1_000_000) -> Binary:
    return Binary(path, size, content, owner.replace(" ", "=="))


def listed(
    *packages: Package,
    files: Sequence[Binary | ClosedFile] = (),
    requires: Mapping[str, Sequence[str]] | None = None,
    sizes: Mapping[str, int] | None = None,
    shared: Sequence[SharedPath] = (),
) -> Inventory:
    """What the wheels of `packages` hold."""
    found = image(
        *(one for one in files if isinstance(one, Binary)),
        installed=[f"{one.name} {one.version}" for one in packages],
        requires=requires,
        sizes=sizes,
        shared=shared,
        root=False,
    )
    return replace(found, closed=tuple(one for one in files if isinstance(one, ClosedFile)))


def subject(
    where: Target,
    *packages: Package,
    files: Sequence[Binary | ClosedFile] = (),
    stale: Staleness | None = None,
    without_wheel: Mapping[str, str] | None = None,
    **more: object,
) -> Wheels:
    inventory = listed(*packages, files=files, **more)  # type: ignore[arg-type]
    return wheels(
        where,
        inventory,
        evidence(inventory, load()),
        lock(*packages),
        load(),
        Policy(),
        downloads={one.name: one.wheels[0].size or 0 for one in packages if one.wheels},
        stale=stale,
        without_wheel=without_wheel,
    )


def found(where: Target, *packages: Package, **more: object) -> tuple[Finding, ...]:
    return judge_wheels(subject(where, *packages, **more)).findings  # type: ignore[arg-type]


def judged(where: Wheels) -> dict[str, Verdict]:
    own = tree_verdicts(
        where.backend, where.inventory, where.evidence, Policy(), load(), where.resolution
    )
    assert where.lock is not None
    return {one.name: one for one in pass_through_requirements(where.lock, own)}


def gained(where: Wheels) -> Mapping[str, Gain]:
    return gains(where, judged(where))


__all__ = ["closed", "file", "found", "gained", "judged", "opened", "subject"]
