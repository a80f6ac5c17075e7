"""Bytes that a lock downloads and installs, and those of them that are in vain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from buildmatrix.index.model import WheelFacts
from buildmatrix.inventory.model import Artefact, Binary
from buildmatrix.rules.carried import HELD
from buildmatrix.rules.model import AuditTotals, Verdict
from buildmatrix.rules.wheels import Wheels


def weigh(
    wheels: Wheels,
    verdicts: Iterable[Verdict],
    facts: Mapping[str, WheelFacts],
    unread: Mapping[str, int],
) -> tuple[tuple[Verdict, ...], AuditTotals]:
    """The verdicts with their bytes, and the sums.

    `facts` are those of the wheels, by name; `unread` are the bytes of those that could not be
    read, as the lock says them. Of these, what a name tells to be foreign is in vain.
    """
    foreign = _foreign_files(wheels)
    weighed = tuple(
        _weighed(one, facts[one.name], foreign.get(f"{one.name}=={one.version}", {}))
        if one.name in facts
        else one
        for one in verdicts
    )
    return weighed, AuditTotals(
        download=sum(one.size for one in facts.values()) + sum(unread.values()),
        installed=sum(member.size for one in facts.values() for member in one.members),
        foreign_download=sum(one.foreign_download or 0 for one in weighed)
        + sum(unread.get(name, 0) for name in _foreign_names(wheels)),
        foreign_installed=sum(one.foreign_bytes for one in weighed if one.verdict != "ok"),
        foreign_at_least=any(one.foreign_at_least and _adds(one) for one in weighed),
    )


def _adds(one: Verdict) -> bool:
    """Whether more that is foreign in it would be more that is in vain."""
    return one.is_open or (one.verdict != "ok" and one.foreign_bytes > 0)


def _foreign_names(wheels: Wheels) -> Iterable[str]:
    """Distributions that belong to another backend as a whole, as their names say."""
    return {
        present.name
        for present, match in wheels.matches
        if match.weight == "strong" and match.kind != "multi-backend" and wheels.is_foreign(match)
    }


def _foreign_files(wheels: Wheels) -> Mapping[str, Mapping[str, int]]:
    """Distribution (`name==version`) -> path -> bytes in it that are foreign."""
    found: dict[str, dict[str, int]] = {}
    for item in wheels.foreign:
        if item.kind in HELD and item.weight == "strong" and item.distribution is not None:
            files = found.setdefault(item.distribution, {})
            files[item.path] = max(item.size, files.get(item.path, 0))
    # What lies in a container is a part of that.
    inventory = wheels.inventory
    inside: list[Binary | Artefact] = [*inventory.binaries, *inventory.artefacts]
    for one in inside:
        files = found.get(one.owner or "", {})
        if one.container is not None and one.path in files:
            files[one.container] = files.get(one.container, 0) + files.pop(one.path)
    return found


def _weighed(one: Verdict, facts: WheelFacts, foreign: Mapping[str, int]) -> Verdict:
    installed = sum(member.size for member in facts.members)
    is_whole = one.foreign_bytes >= installed
    if one.verdict == "ok":
        in_vain = 0
    elif is_whole:
        in_vain = facts.size
    else:
        # A part of a file is packed as tightly as the whole of it, as far as a list can tell.
        in_vain = sum(
            round(member.compressed * min(1.0, foreign[member.path] / member.size))
            for member in facts.members
            if member.path in foreign and member.size
        )
    return replace(
        one,
        download=facts.size,
        foreign_download=min(in_vain, facts.size),
        foreign_at_least=one.foreign_at_least and not is_whole,
    )
