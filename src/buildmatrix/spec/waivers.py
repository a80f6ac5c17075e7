"""`[[waive]]` tables: those of a specification, and those of a file of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from buildmatrix.spec.document import Problems, read
from buildmatrix.spec.keys_checks import WaiverTable
from buildmatrix.spec.layers import sound
from buildmatrix.spec.model import Waiver
from buildmatrix.spec.points import choose
from buildmatrix.spec.shapes import SpecNode, many
from buildmatrix.spec.tables import Table, group, row


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiversFile(Table):
    """A file that holds waivers and nothing else."""

    waive: tuple[WaiverTable, ...] = group(many(row(WaiverTable)), "Findings that are accepted.")


def load_waivers(path: Path, ids: Sequence[str] | None) -> tuple[Waiver, ...]:
    """The waivers of a file, checked like those of a specification.

    `ids` are the targets: each pattern must match one. None where there is no specification.
    Raises `SpecError` with all problems of the file.
    """
    problems = Problems(str(path))
    document = read(path, problems, absent="name a file with [[waive]] tables")
    file = row(WaiversFile).read(document.values, SpecNode(document, problems))
    waivers = tuple(checked_waiver(waive, ids, (), problems) for waive in file.waive)
    problems.stop()
    return waivers


def checked_waiver(
    waive: WaiverTable, ids: Sequence[str] | None, gone: Sequence[str], problems: Problems
) -> Waiver:
    """A waiver; a pattern that matches none of `ids` is a problem. `gone` are excluded ones."""
    if ids is not None:
        choose(waive.select, ids, gone, problems)
    return Waiver(
        rule=waive.rule.value,
        select=tuple(text.value for text in sound(waive.select)),
        distribution=waive.distribution.value if waive.distribution else None,
        path=waive.path.value if waive.path else None,
        reason=waive.reason.value,
        owner=waive.owner.value,
        expires=waive.expires,
        position=waive.at,
    )
