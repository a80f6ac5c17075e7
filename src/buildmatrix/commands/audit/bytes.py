"""Bytes that a lock downloads and installs, and those of them that are wasted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from buildmatrix.index.model import WheelFacts
from buildmatrix.inventory.model import Artefact, Binary
from buildmatrix.rules.evidence import HELD
from buildmatrix.rules.locks import Wheels
from buildmatrix.rules.model import AuditTotals, Verdict


def weigh(
    wheels: Wheels,
    verdicts: Iterable[Verdict],
    facts: Mapping[str, WheelFacts],
    unread: Mapping[str, int],
) -> tuple[tuple[Verdict, ...], AuditTotals]:
    """The verdicts with their bytes, and the sums.

    `facts` are those of the wheels, by name; `unread` are the bytes of those that could not be
    read, as the lock says them. Of these, what a name says is foreign is wasted.
    """
    foreign = _foreign_files(wheels)
    weighed = tuple(
        _weighed(verdict, facts[verdict.name], foreign.get(verdict.owner, {}))
        if verdict.name in facts
        else verdict
        for verdict in verdicts
    )
    return weighed, AuditTotals(
        download=sum(wheel_facts.size for wheel_facts in facts.values()) + sum(unread.values()),
        installed=sum(
            member.size for wheel_facts in facts.values() for member in wheel_facts.members
        ),
        foreign_download=sum(verdict.foreign_download or 0 for verdict in weighed)
        + sum(unread.get(name, 0) for name in _foreign_names(wheels)),
        foreign_installed=sum(
            verdict.foreign_bytes for verdict in weighed if verdict.verdict != "ok"
        ),
        foreign_at_least=any(verdict.foreign_at_least and _adds(verdict) for verdict in weighed),
    )


def _adds(verdict: Verdict) -> bool:
    """Return True if more foreign bytes in it would be more waste."""
    return verdict.is_open or (verdict.verdict != "ok" and verdict.foreign_bytes > 0)


def _foreign_names(wheels: Wheels) -> Iterable[str]:
    """Distributions that belong to another backend as a whole, as their names say."""
    return {
        present.name
        for present, match in wheels.matches
        if match.weight == "strong" and match.kind != "multi-backend" and wheels.is_foreign(match)
    }


def _foreign_files(wheels: Wheels) -> Mapping[str, Mapping[str, int]]:
    """Distribution (`name==version`) -> path -> bytes in it that are foreign."""
    foreign: dict[str, dict[str, int]] = {}
    for item in wheels.foreign:
        if item.kind in HELD and item.weight == "strong" and item.distribution is not None:
            files = foreign.setdefault(item.distribution, {})
            files[item.path] = max(item.size, files.get(item.path, 0))
    # What lies in a container is a part of that.
    inventory = wheels.inventory
    inside: list[Binary | Artefact] = [*inventory.binaries, *inventory.artefacts]
    for part in inside:
        files = foreign.get(part.owner or "", {})
        if part.container is not None and part.path in files:
            files[part.container] = files.get(part.container, 0) + files.pop(part.path)
    return foreign


def _weighed(verdict: Verdict, facts: WheelFacts, foreign: Mapping[str, int]) -> Verdict:
    installed = sum(member.size for member in facts.members)
    is_whole = verdict.foreign_bytes >= installed
    if verdict.verdict == "ok":
        wasted = 0
    elif is_whole:
        wasted = facts.size
    else:
        # A part of a file is packed as tightly as the whole of it, as far as a list can tell.
        wasted = sum(
            round(member.compressed * min(1.0, foreign[member.path] / member.size))
            for member in facts.members
            if member.path in foreign and member.size
        )
    return replace(
        verdict,
        download=facts.size,
        foreign_download=min(wasted, facts.size),
        foreign_at_least=verdict.foreign_at_least and not is_whole,
    )
