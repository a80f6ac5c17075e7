"""A lock or requirements as one side of a comparison; wheels are read on their index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import shown
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.commands.audit.run import audit
from buildmatrix.commands.audit.session import judge_for
from buildmatrix.commands.diff.model import Side
from buildmatrix.commands.diff.sides import DiffSettings, add_facts, add_lock
from buildmatrix.facts.inventory.merge import merge
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.locks.index.reading import CachingReader, key
from buildmatrix.locks.selection import choose_wheel
from buildmatrix.matrix.model import Spec
from buildmatrix.reports.run.model import is_undecided
from buildmatrix.sources.model import Declared
from buildmatrix.sources.wheels_on_index import (
    chosen_wheels,
    own_target,
    read_wheels,
    resolved_for,
    same_for_all,
)

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
