"""A SOURCE as one side of a comparison: its facts, and findings about them.

A side is an image (in an engine, saved, or of a built target), a tree, a wheel, a lock,
requirements, or a saved report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.base.text import shown
from buildmatrix.catalogue.leftovers import split_leftovers
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.audit import audit, judge_for
from buildmatrix.commands.diff_contents import (
    HeldDistribution,
    Side,
    find_libraries,
    group_architectures,
)
from buildmatrix.commands.inspect import sum_shares
from buildmatrix.commands.options import DiffOptions
from buildmatrix.commands.why import load_or_make
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.judge.acceptance import (
    apply_policy,
    apply_waivers,
    check_severities,
    check_waived_rules,
)
from buildmatrix.judge.judging import judge_image
from buildmatrix.judge.model import TargetResult
from buildmatrix.locks.index.reading import CachingReader, key
from buildmatrix.locks.model import CondaPackage, Lock, Package, Wheel
from buildmatrix.locks.selection import choose_wheel
from buildmatrix.matrix.matrix import match
from buildmatrix.matrix.model import ANY, Spec, Target, Waiver, bare_spec, bare_target
from buildmatrix.reports.run import Report, assemble, is_undecided
from buildmatrix.reports.saved import read
from buildmatrix.sources.local import SavedReport, is_wheel_label
from buildmatrix.sources.model import Declared, Facts, Installed, ReadingOptions, Source
from buildmatrix.sources.wheels_on_index import (
    chosen_wheels,
    merge,
    own_target,
    read_wheels,
    resolved_for,
    same_for_all,
)


def add_facts(side: Side, inventory: Inventory, seen: Sequence[Evidence]) -> Side:
    """Return `side` with the facts of its files."""
    # Whose files were read partly or not at all.
    owners = [binary.owner for binary in inventory.binaries if binary.elf.read is not None]
    owners += [file.owner for file in inventory.closed]
    vendors: dict[tuple[str, str], int] = {}
    for share in sum_shares(seen):
        key = share.vendor, share.backend
        vendors[key] = vendors.get(key, 0) + share.size
    return replace(
        side,
        held=_list_distributions(inventory),
        libraries=find_libraries(inventory, seen),
        architectures=group_architectures(seen),
        partial=frozenset(owner.partition("==")[0] for owner in owners if owner is not None),
        vendors=vendors,
        size=inventory.stats.bytes_total,
        layers=inventory.layers or None,
        environment=inventory.environment if side.kind == "image" else None,
        unread=inventory.unread,
    )


def _list_distributions(inventory: Inventory) -> tuple[HeldDistribution, ...]:
    binaries: dict[str, dict[str, tuple[int, str]]] = {}
    for binary in inventory.binaries:
        if binary.owner is not None:
            files = binaries.setdefault(binary.owner, {})
            files[_relative_path(binary.path)] = binary.size, binary.elf.build_id or ""
    for file in inventory.closed:
        if file.owner is not None:
            binaries.setdefault(file.owner, {})[_relative_path(file.path)] = file.size, ""
    return tuple(
        HeldDistribution(
            distribution.name,
            distribution.version,
            size=distribution.size if distribution.has_record else None,
            record=distribution.record,
            requires=distribution.requires,
            binaries=binaries.get(distribution.owner, {}),
        )
        for distribution in inventory.distributions
    )


def _relative_path(path: str) -> str:
    """Return the path relative to site-packages, which depends on the Python."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in path:
            return path.rpartition(folder)[2]
    return path


def add_lock(side: Side, lock: Lock, chosen: Callable[[Package], Wheel | None]) -> Side:
    """Return `side` with the data of a lock: the file and index that an installer takes."""
    by_version = {(held.name, held.version): held for held in side.held}
    held = []
    files = {item.name: item.file for item in lock.conda if isinstance(item, CondaPackage)}
    for package in (*lock.packages, *(item for item in lock.conda if files.get(item.name))):
        key = package.name, package.version
        wheel = files.get(package.name) or chosen(package)
        read = replace(by_version.get(key) or HeldDistribution(*key), index=package.index)
        download, filename, sha256 = (
            (wheel.size, wheel.filename, wheel.sha256 or None) if wheel else (None, None, None)
        )
        held.append(replace(read, download=download, wheel=filename, sha256=sha256))
    return replace(side, held=tuple(held))


# Settings for both sides


class DiffSettings(Struct, frozen=True):
    """Settings for reading and judging both sides."""

    options: DiffOptions
    reading: ReadingOptions
    #: The specification of this folder, or None.
    spec: Callable[[], Spec | None]
    waivers: tuple[Waiver, ...]
    #: The user's own data files for the catalogue.
    data_files: tuple[Path, ...]
    today: date
    #: For sides without a backend: that of the other side.
    fallback: str | None = None
    #: Facts read in this run, by SOURCE.
    facts: dict[str, Facts] = field(default_factory=dict)


#: Backend and runtime in the identifier of a target.
_TARGET_PREFIX = re.compile(r"([a-z][a-z-]*?)([0-9.]*)(-|$)")


def read_lock_side(source: Declared, settings: DiffSettings) -> Side:
    """Read a lock or resolve requirements, and judge the result if a backend is known.

    Raises the errors of resolving, and `UsageError` if the target is ambiguous.
    """
    index, spec, text = settings.reading.index(), settings.spec(), source.text
    globs, backends = _choose_targets(source, spec, settings)
    resolved = same_for_all(text, resolved_for(source, spec, index, backends, globs))
    reader = CachingReader(index.reader)
    side = Side(shown(text if ":" in text else f"lock:{text}"), "lock")
    if globs or backends:
        judge = judge_for(
            spec, settings.waivers, settings.options.fail_on or "error", settings.today, ()
        )
        report = audit(side.source, [resolved], reader, judge, index.progress, deep=index.deep)
        side = replace(
            side,
            targets={resolved.target.id: resolved.target.backend},
            findings=report.findings,
            verdicts=report.distributions,
            unread=report.unread,
            is_undecided=is_undecided(report),
        )
        # The audit knows which wheels need a deep read.
        keys = [key(wheel) for wheel in chosen_wheels(resolved).wheels.values()]
        parts = [reader.facts[name] for name in keys if name in reader.facts]
        inventory = merge([part.inventory for part in parts], [part.members for part in parts])
        inventory = replace(inventory, unread=side.unread)
    else:
        try:
            inventory = read_wheels(resolved, reader, index.deep, index.progress)
        except UndecidedError as error:
            # The lock itself still has versions and wheels.
            inventory = Inventory(unread=(Unread(text, error.message),))
    side = add_facts(side, inventory, evidence(inventory, load(settings.data_files)))
    return replace(
        add_lock(side, resolved.lock, lambda package: choose_wheel(package, resolved.target)),
        is_undecided=side.is_undecided or bool(inventory.unread),
    )


def _choose_targets(
    source: Declared, spec: Spec | None, settings: DiffSettings
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the targets of the specification, or backends, that a source is read for."""
    if spec is not None and settings.options.select:
        return settings.options.select, ()
    if settings.options.backend is not None:
        return (), (f"{settings.options.backend}{settings.options.runtime or ''}",)
    nothing: tuple[Sequence[str], Sequence[str]]
    nothing = (), (settings.fallback,) if settings.fallback is not None else ()
    own = own_target(source, spec)
    if own is not None:
        return (own,), ()
    match = _TARGET_PREFIX.match(source.made_for())
    if match is None or match[1] not in load(settings.data_files).backends:
        return nothing
    return (), (f"{match[1]}{match[2]}",)


#: Cache keys of a target's side: without its layers, and with them.
CACHE_KEY, CACHE_KEY_LAYERS = "side", "side-layers"
#: Labels of images built by buildmatrix (`engines.dockerfile`).
_RUNTIME = "dev.buildmatrix.runtime"
_BASE = "org.opencontainers.image.base.name"


def read_sides(before: Source, after: Source, settings: DiffSettings) -> tuple[Side, Side]:
    """Read both sides. One without a backend is judged for that of the other."""
    _check_backend(settings.options.backend, settings)
    first = read_side(before, settings)
    second = read_side(after, replace(settings, fallback=_single_backend(first)))
    if first.findings is None and _single_backend(second) is not None:
        first = read_side(before, replace(settings, fallback=_single_backend(second)))
    return first, second


def _single_backend(side: Side) -> str | None:
    return side.backends[0] if len(side.backends) == 1 else None


def read_side(source: Source, settings: DiffSettings) -> Side:
    """Read a source, and judge it if a backend is known. Raises the errors of reading."""
    if isinstance(source, SavedReport):
        return read_report_side(source.path, settings.options.select, settings.options.backend)
    if isinstance(source, Declared):
        return read_lock_side(source, settings)
    target = source.target()
    if target is not None:
        return _read_target(source, *target, settings)
    assert isinstance(source, Installed)
    return _read_tree(source, settings)


def _check_backend(name: str | None, settings: DiffSettings, prefix: str = "") -> None:
    backend_entries = load(settings.data_files).backends
    if name is not None and name not in backend_entries:
        raise UsageError(
            f"{prefix}there is no backend {name!r}; the catalogue knows "
            f"{', '.join(sorted(backend_entries))}"
        )


# Trees


def _read_tree(source: Installed, settings: DiffSettings) -> Side:
    facts = settings.facts.get(facts_key := str(source))
    if facts is None:
        facts = settings.facts[facts_key] = source.facts(settings.reading)
    is_wheel = source.form == "wheel"
    side = Side(facts.label, source.form, is_wheel=is_wheel, base=facts.labels.get(_BASE))
    backend = settings.options.backend or facts.backend or settings.fallback
    _check_backend(backend, settings, f"{source}: ")
    runtime = settings.options.runtime or facts.labels.get(_RUNTIME, ANY)
    target = None
    if backend is not None:
        target = bare_target(str(source), backend, runtime, base=source.name)
    spec = replace(
        bare_spec(), catalogue=tuple(str(path.absolute()) for path in settings.data_files)
    )
    side = _apply_waivers(_judge(side, facts.inventory, target, spec, None), spec, settings)
    if (path := source.single_file) is None:
        return side
    from buildmatrix.images.store.facts import file_digest

    size, sha256 = path.stat().st_size, file_digest(path)
    wheels = (replace(it, download=size, wheel=path.name, sha256=sha256) for it in side.held)
    return replace(side, held=tuple(wheels))


def _read_target(source: Source, target: Target, spec: Spec, settings: DiffSettings) -> Side:
    """Return the last built image of a target; the result is cached beside it."""
    if settings.options.backend is not None and settings.options.backend != target.backend:
        raise UsageError(
            f"{source} is a target for {target.backend}, not for {settings.options.backend}"
        )
    options = settings.reading

    def make() -> tuple[Side, tuple[Path, ...]]:
        facts = source.facts(options)
        side = Side(facts.label, "image", base=target.base.final)
        made = _judge(side, facts.inventory, target, spec, facts.lock)
        return made, (*facts.files, *facts.catalogue)

    beside = source.cache_location(options)
    if beside is None:
        return _apply_waivers(make()[0], spec, settings)
    side = load_or_make(
        beside.store,
        CACHE_KEY_LAYERS if options.layers else CACHE_KEY,
        beside.files,
        make,
        Side,
        fits=lambda side: not options.layers or bool(side.layers),
    )
    return _apply_waivers(side, spec, settings)


def _judge(
    side: Side, inventory: Inventory, target: Target | None, spec: Spec, lock: Lock | None
) -> Side:
    """Return `side` with the facts of `inventory`, and findings if there is a target."""
    catalogue = load(spec.catalogue_files)
    installed = split_leftovers(inventory, catalogue).installed
    seen = evidence(installed, catalogue)
    side = add_facts(side, installed, seen)
    if target is None:
        return side
    judgement = judge_image(target, inventory, seen, lock, catalogue, spec.policy)
    report = assemble(
        side.source,
        str(catalogue.date),
        findings=judgement.findings,
        verdicts=judgement.verdicts,
        inventories=[inventory],
    )
    return replace(
        side,
        targets={target.id: target.backend},
        findings=report.findings,
        verdicts=report.distributions,
        unread=report.unread,
    )


def _apply_waivers(side: Side, spec: Spec, settings: DiffSettings) -> Side:
    """Apply today's waivers to `side`, and determine if anything is undecided."""
    if side.findings is None:
        return replace(side, is_undecided=bool(side.unread))
    accepted = (*spec.waivers, *settings.waivers)
    check_waived_rules(accepted)
    check_severities(spec.policy)
    counted = apply_policy(side.findings, spec.policy)
    findings = tuple(apply_waivers(counted, accepted, settings.today))
    report = Report(side.source, findings=findings, unread=side.unread)
    return replace(side, findings=findings, is_undecided=is_undecided(report))


# Saved reports


def read_report_side(path: Path, globs: Sequence[str], backend: str | None) -> Side:
    """Read a report, for the selected targets.

    A report lacks facts that no rule objected to. Raises `UsageError` for other files, and if no
    target is selected.
    """
    report = read(path)
    targets = _select_targets(path, report, globs, backend)
    only = targets[0] if len(targets) == 1 else None
    ids = {target.id for target in targets}
    others = {target.id for target in report.targets} - ids
    verdicts = tuple(
        verdict
        for verdict in report.distributions
        if not report.targets
        or any(verdict.is_about(target.id, target.backend) for target in targets)
    )
    return Side(
        f"report:{path}",
        "report",
        subject=report.subject,
        targets={target.id: target.backend for target in targets},
        is_wheel=bool(targets) and all(is_wheel_label(result.id) for result in targets),
        held=tuple(
            dict.fromkeys(
                HeldDistribution(
                    v.name, v.version, backend=v.backend, download=v.download, sha256=v.sha256
                )
                for v in verdicts
            )
        ),
        # An audit judges by part of the files.
        partial=frozenset(v.name for v in verdicts if v.depth not in (None, "whole")),
        # The bytes of one image, or of a lock's installation.
        size=(only.audit.installed if only.audit else only.size) if only else None,
        digest=only.digest if only else None,
        findings=tuple(finding for finding in report.findings if finding.target not in others),
        verdicts=verdicts,
        unread=report.unread,
        is_undecided=is_undecided(report),
    )


def _select_targets(
    path: Path, report: Report, globs: Sequence[str], backend: str | None
) -> tuple[TargetResult, ...]:
    ids = [target.id for target in report.targets]
    wanted = set(match(globs, ids) if globs else ids)
    targets = tuple(
        target
        for target in report.targets
        if target.id in wanted and backend in (None, target.backend)
    )
    if not targets and report.targets:
        selection = [f"--select {glob}" for glob in globs]
        selection += [f"--backend {backend}"] if backend else []
        raise UsageError(
            f"report:{path} has no target for {' and '.join(selection)}; it has {', '.join(ids)}"
        )
    return targets
