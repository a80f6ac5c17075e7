"""Wheels of a declared source for one target, read on their index.

Nothing is installed, and no wheel is downloaded as a whole unless requested: lists of files, then
the beginnings of binaries within the budget of an audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UndecidedError, UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import count, shown
from buildmatrix.facts.inventory.merge import merge
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.judge.unread import merge_causes
from buildmatrix.locks.condalock import conda_distributions
from buildmatrix.locks.index.model import Need, WheelFacts, shares
from buildmatrix.locks.index.reading import Reader, Readings, WheelRequest, key
from buildmatrix.locks.model import Wheel
from buildmatrix.locks.requires import add_askers
from buildmatrix.locks.selection import choose_wheel, is_wheel_of, marker_environment, refusal
from buildmatrix.matrix.model import Spec
from buildmatrix.sources.model import (
    SHALLOW,
    Declared,
    Facts,
    OnlineIndex,
    ReadingOptions,
    add_lines,
)
from buildmatrix.sources.questions import lock_owner
from buildmatrix.sources.resolved import Resolved, resolve_sources

# Selection: the wheels that an installer takes for a target


class Chosen(Struct, frozen=True):
    """The wheels of one target."""

    #: By distribution.
    wheels: Mapping[str, Wheel]
    #: Why no wheel is taken, for the other distributions.
    without_wheel: Mapping[str, str]


def chosen_wheels(resolved: Resolved) -> Chosen:
    """Choose the wheels of a lock for its target."""
    chosen: dict[str, Wheel] = {}
    without: dict[str, str] = {}
    for package in resolved.lock.packages:
        wheel = choose_wheel(package, resolved.target)
        if wheel is None or not wheel.url:
            reason = refusal(package, resolved.target) if wheel is None else None
            without[package.name] = reason or "its lock does not say where its wheel is"
        elif not is_wheel_of(wheel, package):
            without[package.name] = (
                f"its lock names {wheel.filename}, which is not a file of this version"
            )
        else:
            chosen[package.name] = wheel
    return Chosen(chosen, without)


#: Wheels that are read at the same time. Most of the time is spent waiting for an index.
JOBS = 16


def facts_of(source: Declared, options: ReadingOptions) -> Facts:
    """Return the facts of the wheels that `source` resolves to for one target.

    Raises `UsageError` where it comes to different things for several targets and nothing says
    which is meant, and whatever resolving it raises.
    """
    spec, index = options.spec(), options.index()
    select = options.select or (None if options.backend else own_target(source, spec))
    backends = [options.backend] if options.backend else []
    resolutions = resolved_for(source, spec, index, backends, [select] if select else [])
    resolved = same_for_all(source.text, resolutions)
    target = resolved.target
    inventory = read_wheels(resolved, index.reader, index.deep, index.progress)
    environment = marker_environment(target)
    lock = add_askers(resolved.lock, inventory.distributions, environment)
    others = len(resolutions) - 1
    alike = f" and {count(others, 'other target')} alike" if others else ""
    named = f"{source.text}, for {target.id}{alike}"
    # Only a part of some file was read.
    is_shallow = inventory.closed or any(
        binary.elf.read is not None for binary in inventory.binaries
    )
    facts = Facts(
        shown(named if target.id not in source.text else source.text),
        inventory,
        environment=environment,
        notes=(SHALLOW,) if is_shallow and not index.deep else (),
        catalogue=spec.catalogue_files if spec is not None else (),
        target=(target, spec) if spec is not None and target in spec.targets else None,
    )
    lock = replace(lock, packages=(*lock.packages, *lock.conda))
    return add_lines(facts, lock, spec.root if spec is not None else Path())


def resolved_for(
    source: Declared,
    spec: Spec | None,
    index: OnlineIndex,
    backends: Sequence[str],
    globs: Sequence[str],
) -> tuple[Resolved | BuildmatrixError, ...]:
    """Resolve `source` for each selected target; see `resolve_sources`."""
    return resolve_sources(
        [source.text],
        spec,
        backends=backends,
        globs=globs,
        python=index.python,
        cache=index.cache,
        offline=index.offline,
        progress=index.progress,
    )


def own_target(source: Declared, spec: Spec | None) -> str | None:
    """The target of `spec` whose lock `source` is, or has the name of; None for others."""
    if spec is None:
        return None
    if owner := lock_owner(spec, Path(source.name)):
        return owner.id
    id = source.made_for()
    return id if any(target.id == id for target in spec.targets) else None


def same_for_all(text: str, resolutions: Sequence[Resolved | BuildmatrixError]) -> Resolved:
    """Return the resolution of `text`, if it is the same for all targets.

    Raises `UsageError` where it is not, and what resolving raised where nothing was found.
    """
    resolved = [item for item in resolutions if isinstance(item, Resolved)]
    errors = [error for error in resolutions if isinstance(error, BuildmatrixError)]
    if not resolved:
        raise errors[0] if errors else UndecidedError(f"{text} comes to nothing")
    wheels = {tuple(sorted(map(key, chosen_wheels(item).wheels.values()))) for item in resolved}
    if len(wheels) > 1 or (errors and len(resolved) > 1):
        names = ", ".join(item.target.id for item in resolved)
        raise UsageError(
            f"{text} is not the same for every target ({names}); say which one with --backend or "
            "--select"
        )
    return resolved[0]


def read_wheels(resolved: Resolved, reader: Reader, deep: bool, progress: Progress) -> Inventory:
    """The site-packages that the wheels of one target would become, as far as they are read."""
    chosen = chosen_wheels(resolved)
    readings = Readings(reader, JOBS, progress)
    wheels = {key(wheel): wheel for wheel in chosen.wheels.values()}
    if deep:
        readings.read([WheelRequest(wheel, "whole") for wheel in wheels.values()], "contents")
    else:
        readings.read([WheelRequest(wheel, "listing") for wheel in wheels.values()], "file lists")
        needs = {
            name: Need.of(wheel_facts.size, wheel_facts.members)
            for name, wheel_facts in readings.facts.items()
            if wheel_facts.inventory.closed
        }
        budget = shares([needs], sum(wheel_facts.size for wheel_facts in readings.facts.values()))
        further = [
            WheelRequest(wheels[name], "heads", most) for name, most in sorted(budget.items())
        ]
        readings.read(further, "beginnings of binaries")
    parts: list[WheelFacts] = [readings.facts[item] for item in wheels if item in readings.facts]
    if not parts and resolved.lock.packages:
        why = next(iter([*readings.failures.values(), *chosen.without_wheel.values()]), "no wheels")
        raise UndecidedError(f"none of the locked wheels could be read: {why}")
    inventory = merge(
        [wheel_facts.inventory for wheel_facts in parts],
        [wheel_facts.members for wheel_facts in parts],
    )
    unread = (
        *merge_causes(
            Unread(wheel.filename, readings.failures[name])
            for name, wheel in wheels.items()
            if name in readings.failures
        ),
        *(Unread(name, why) for name, why in chosen.without_wheel.items()),
        *resolved.lock.unread,
    )
    conda = conda_distributions(resolved.lock.conda)
    return replace(
        inventory,
        distributions=(*inventory.distributions, *conda),
        unread=(*inventory.unread, *unread),
    )
