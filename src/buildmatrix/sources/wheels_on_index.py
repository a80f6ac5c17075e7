"""Wheels of a declared source for one target: read on their index, and merged.

Nothing is installed, and no wheel is downloaded as a whole unless requested: lists of files, then
the beginnings of binaries within the budget of an audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UndecidedError, UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import count, shown
from buildmatrix.facts.inventory.model import (
    Artefact,
    Binary,
    ClosedFile,
    Inventory,
    PythonImport,
    SharedPath,
    Stats,
    Unread,
)
from buildmatrix.facts.trees.wheel import Member
from buildmatrix.judge.unread import merge_causes
from buildmatrix.locks.conda_packages import conda_distributions
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


# Reading: the facts of these wheels


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


# Merging: the site-packages that wheels would become, from their inventories


class MergedPaths(Struct):
    """Results from the file lists alone, the same for any depth of reading.

    For callers that merge the same wheels again; empty at first.
    """

    shared: tuple[SharedPath, ...] | None = None
    modules: Mapping[str, str] | None = None
    #: What dotted names begin with that some wheel has, or may have.
    tops: frozenset[str] = frozenset()


def merge(
    parts: Sequence[Inventory],
    members: Sequence[Sequence[Member]] | None = None,
    paths: MergedPaths | None = None,
) -> Inventory:
    """Merge the facts of `parts`, as if the wheels were installed together.

    `members` are the files of each part, in the same order. They show which paths two wheels share,
    with which bytes (CRC-32 and size), and which wheel has a module that another one imports.
    Without them, only paths in the inventories can be compared, and their bytes cannot. `paths`
    keeps these results for the next call.

    For a path in two wheels, the result has both binaries: the installer decides which one stays.
    The reach of a library is that within its wheel; only `PythonImport` leads from one distribution
    to another.
    """
    lists = members or [_listed_files(part) for part in parts]
    owners = [next((item.owner for item in part.distributions), "") for part in parts]
    paths = paths or MergedPaths()
    if paths.shared is None:
        paths.shared = tuple(_find_shared_paths(owners, lists, checked=members is not None))
    if paths.modules is None and any(part.python_imports for part in parts):
        paths.modules = _map_modules(owners, lists)
        paths.tops = frozenset(name.partition(".")[0] for name in paths.modules)
        paths.tops |= set(_names_below_pth(lists))
    names = (item.name for item in fields(Stats))
    totals = Stats(**{name: sum(getattr(part.stats, name) for part in parts) for name in names})
    shared = [*_chain_field(parts, "shared_paths"), *paths.shared]
    imports = (
        provided
        for python_import in _chain_field(parts, "python_imports")
        if (provided := _add_provider(python_import, paths)) is not None
    )
    return Inventory(
        distributions=_merge_field(parts, "distributions", "path"),
        binaries=_merge_field(parts, "binaries", "path"),
        artefacts=_merge_field(parts, "artefacts", "path"),
        containers=_merge_field(parts, "containers", "path"),
        python_loads=_merge_field(parts, "python_loads", "path", "line", "call"),
        python_imports=tuple(
            sorted(imports, key=lambda imported: (imported.path, imported.line, imported.module))
        ),
        unparsed=_merge_field(parts, "unparsed", "path"),
        statements=_merge_field(parts, "statements", "path"),
        links=_merge_field(parts, "links", "path"),
        shared_paths=tuple(
            sorted(shared, key=lambda shared_path: (shared_path.path, shared_path.owners))
        ),
        closed=_merge_field(parts, "closed", "path"),
        unread=_merge_field(parts, "unread", "path", "why"),
        stats=replace(totals, seconds=round(totals.seconds, 3)),
    )


def _chain_field(parts: Iterable[Inventory], field: str) -> Iterator[Any]:
    return chain.from_iterable(getattr(part, field) for part in parts)


def _merge_field(parts: Iterable[Inventory], field: str, *keys: str) -> tuple[Any, ...]:
    """Return all entries of a field, in an order independent of that of the parts."""

    def place(fact: object) -> tuple[object, ...]:
        return *(getattr(fact, key) for key in keys), getattr(fact, "owner", "") or ""

    return tuple(sorted(_chain_field(parts, field), key=place))


def _listed_files(part: Inventory) -> list[Member]:
    """Return the files named in an inventory."""
    artefacts = (artefact for artefact in part.artefacts if artefact.container is None)
    files: Iterable[Binary | Artefact | ClosedFile]
    files = chain(part.loadable, artefacts, part.closed)
    return [Member(file.path, file.size, 0, 0) for file in files]


def _find_shared_paths(
    owners: Sequence[str], lists: Sequence[Sequence[Member]], *, checked: bool
) -> Iterator[SharedPath]:
    """Yield paths of more than one wheel; all owners match if all have the same bytes."""
    # Only few of about ten thousand paths are in two wheels, so a single look-up suffices for most.
    first: dict[str, tuple[str, Member]] = {}
    holders: dict[str, list[tuple[str, Member]]] = {}
    for owner, files in zip(owners, lists, strict=True):
        for member in files:
            holder = owner, member
            if first.setdefault(member.path, holder) is not holder:
                holders.setdefault(member.path, [first[member.path]]).append(holder)
    for path, claimants in holders.items():
        names = tuple(sorted({owner for owner, _ in claimants}))
        if len(names) < 2:
            continue
        is_same = len({(member.size, member.crc) for _, member in claimants}) == 1
        yield SharedPath(path, names, (names if is_same else ()) if checked else None)


def _map_modules(owners: Sequence[str], lists: Sequence[Sequence[Member]]) -> Mapping[str, str]:
    """Map dotted module names to their distribution; the first of several."""
    modules: dict[str, str] = {}
    for owner, files in zip(owners, lists, strict=True):
        for member in files:
            folder, _, name = member.path.rpartition("/")
            stem, _, suffix = name.partition(".")
            if suffix == "py" or suffix.endswith("so"):
                dotted = folder if stem == "__init__" else f"{folder}/{stem}".lstrip("/")
                modules.setdefault(dotted.replace("/", "."), owner)
    return modules


def _names_below_pth(lists: Sequence[Sequence[Member]]) -> Iterator[str]:
    """Yield names of folders and modules in wheels with a `.pth` file, whose text may be unread.

    Each of these folders may be one that Python imports from.
    """
    for files in lists:
        if any(member.path.endswith(".pth") and "/" not in member.path for member in files):
            for member in files:
                if member.path.endswith((".py", ".so")):
                    yield from (part.partition(".")[0] for part in member.path.split("/"))


def _add_provider(imported: PythonImport, paths: MergedPaths) -> PythonImport | None:
    """Return the import with the distribution of the module, or of its package.

    None for a missing module in a namespace that another wheel has.
    """
    modules = paths.modules or {}
    is_missing = imported.how == "missing"
    name = imported.module
    while imported.provider is None and name:
        if name in modules and modules[name] != imported.owner:
            how = "imported" if is_missing else imported.how
            return replace(imported, provider=modules[name], how=how)
        name = name.rpartition(".")[0]
    if is_missing and imported.provider is None and imported.module.partition(".")[0] in paths.tops:
        return None
    return imported
