"""A lock, or what would be locked, as one side of a comparison: its wheels, read on their index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.commands.audit.run import audit
from buildmatrix.commands.audit.subject import judge_for
from buildmatrix.commands.diff.model import Side
from buildmatrix.commands.diff.settings import DiffSettings, with_facts
from buildmatrix.commands.diff.sides import with_lock
from buildmatrix.errors import UndecidedError
from buildmatrix.index.reading import CachingReader, Reader, key
from buildmatrix.inventory.merge import merge
from buildmatrix.inventory.model import Inventory, Unread
from buildmatrix.locks.choose import choose
from buildmatrix.reports.run.model import is_undecided
from buildmatrix.sources.model import Declared, OnlineIndex
from buildmatrix.sources.resolution.chosen import chosen_wheels
from buildmatrix.sources.resolution.resolved import Resolved
from buildmatrix.sources.wheels_on_index import (
    own_target,
    read_wheels,
    resolved_for,
    same_for_all,
)
from buildmatrix.spec.model import Spec
from buildmatrix.text import shown

#: The backend, and its runtime, in the identifier of a target.
_BEGINNING = re.compile(r"([a-z][a-z-]*?)([0-9.]*)(-|$)")


def side_of_lock(source: Declared, settings: DiffSettings) -> Side:
    """Read what a lock or requirements come to, and judge it where a backend is known.

    Raises what resolving raises, and `UsageError` where nothing says which target is meant.
    """
    index, spec, text = settings.options.index(), settings.spec(), source.text
    globs, backends = _meant(source, spec, settings)
    resolved = same_for_all(text, resolved_for(source, spec, index, backends, globs))
    reader = CachingReader(index.reader)
    side = Side(shown(text if ":" in text else f"lock:{text}"), "lock")
    if globs or backends:
        side = _judged(side, resolved, reader, spec, settings, index)
        inventory = _audited(resolved, reader, side)
    else:
        inventory = _read(text, resolved, reader, index)
    side = with_facts(side, inventory, evidence(inventory, load(settings.data_files)))
    return replace(
        with_lock(side, resolved.lock, lambda package: choose(package, resolved.target)),
        is_undecided=side.is_undecided or bool(inventory.unread),
    )


def _meant(
    source: Declared, spec: Spec | None, settings: DiffSettings
) -> tuple[Sequence[str], Sequence[str]]:
    """Targets of the specification, or backends, that a source is read for."""
    if spec is not None and settings.globs:
        return settings.globs, ()
    if settings.backend is not None:
        return (), (f"{settings.backend}{settings.runtime or ''}",)
    nothing: tuple[Sequence[str], Sequence[str]]
    nothing = (), (settings.fallback,) if settings.fallback is not None else ()
    own = own_target(source, spec)
    if own is not None:
        return (own,), ()
    match = _BEGINNING.match(source.made_for())
    if match is None or match[1] not in load(settings.data_files).backends:
        return nothing
    return (), (f"{match[1]}{match[2]}",)


def _judged(
    side: Side,
    resolved: Resolved,
    reader: Reader,
    spec: Spec | None,
    settings: DiffSettings,
    index: OnlineIndex,
) -> Side:
    judge = judge_for(spec, settings.waivers, settings.fail_on, settings.today, ())
    report = audit(side.source, [resolved], reader, judge, index.progress, deep=index.deep)
    return replace(
        side,
        targets={resolved.target.id: resolved.target.backend},
        findings=report.findings,
        verdicts=report.distributions,
        unread=report.unread,
        is_undecided=is_undecided(report),
    )


def _audited(resolved: Resolved, reader: CachingReader, side: Side) -> Inventory:
    """What the audit read: it knows best what has to be read deep."""
    keys = [key(wheel) for wheel in chosen_wheels(resolved).wheels.values()]
    parts = [reader.facts[name] for name in keys if name in reader.facts]
    inventory = merge(
        [wheel_facts.inventory for wheel_facts in parts],
        [wheel_facts.members for wheel_facts in parts],
    )
    return replace(inventory, unread=side.unread)


def _read(text: str, resolved: Resolved, reader: Reader, index: OnlineIndex) -> Inventory:
    try:
        return read_wheels(resolved, reader, index.deep, index.progress)
    except UndecidedError as error:
        # The lock itself still says which versions and which wheels there are.
        return Inventory(unread=(Unread(text, error.message),))
