"""`Requires-Dist` lines (PEP 508): which hold here, for which extras, and the edges they make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from buildmatrix.graph.model import Edge, Node, node_id
from buildmatrix.inventory.names import distribution_name

#: Start of a `Requires-Dist` line: most name what is not there, and need not be parsed.
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
#: A line without a marker; the specifiers in it matter to nobody here.
_PLAIN = re.compile(r"\s*[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[([^\]]*)\])?\s*(?:[(<>=!~][^;@]*)?")
#: How often extras that an extra brings are followed; real ones nest two or three deep.
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Requires:
    """One `Requires-Dist` line that names something that is there."""

    name: str
    extras: frozenset[str]
    line: str
    marker: str
    #: Extra of the requiring distribution for which it holds; None for always.
    extra: str | None


def requirements(
    lines: Iterable[str], present: Mapping[str, Node], environment: Mapping[str, str]
) -> Iterator[Requires]:
    """The lines that name something that is there and whose markers hold, for one extra or none."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement

    for line in dict.fromkeys(lines):
        start = _NAME.match(line)
        if start is None or distribution_name(start[1]) not in present:
            continue
        if plain := _PLAIN.fullmatch(line):
            extras = (one.strip() for one in (plain[1] or "").split(","))
            asked = frozenset(map(distribution_name, filter(None, extras)))
            yield Requires(distribution_name(start[1]), asked, line, "", None)
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue  # As installers do.
        name, marker = distribution_name(requirement.name), requirement.marker
        wanted = frozenset(map(distribution_name, requirement.extras))
        if marker is None:
            yield Requires(name, wanted, line, "", None)
            continue
        text = str(marker)
        named = set(re.findall(r"extra\s*==\s*[\"']([^\"']+)[\"']", text))
        try:
            if marker.evaluate({**environment, "extra": ""}):
                yield Requires(name, wanted, line, text, None)
                continue
            for extra in sorted(named):
                if marker.evaluate({**environment, "extra": extra}):
                    yield Requires(name, wanted, line, text, distribution_name(extra))
        except (UndefinedComparison, UndefinedEnvironmentName):
            yield Requires(name, wanted, line, text, None)


def extras_asked(
    requires: Mapping[str, tuple[Requires, ...]],
    asked: Mapping[str, list[str]],
    lines: Mapping[str, str],
) -> dict[str, set[str]]:
    """The extras of each distribution that somebody asks for: a line, or another distribution."""
    extras: dict[str, set[str]] = {}
    for name, askers in asked.items():
        for line in askers:
            if found := re.match(r"\s*[A-Za-z0-9._-]+\s*\[([^\]]*)\]", lines.get(line, "")):
                wanted = (distribution_name(one.strip()) for one in found[1].split(","))
                extras.setdefault(name, set()).update(wanted)
    for _ in range(_ROUNDS):
        before = sum(map(len, extras.values()))
        for name, needs in requires.items():
            for one in needs:
                if one.extra is None or one.extra in extras.get(name, ()):
                    extras.setdefault(one.name, set()).update(one.extras)
        if sum(map(len, extras.values())) == before:
            break
    return extras


def requirement_edges(
    requires: Mapping[str, tuple[Requires, ...]],
    extras: Mapping[str, set[str]],
    via: Mapping[str, tuple[str, ...]],
) -> Iterator[Edge]:
    """Who requires whom: from metadata, and from the lock what metadata does not show."""
    told: set[tuple[str, str]] = set()
    lines_of: dict[tuple[str, str], list[Requires]] = {}
    for name, needs in requires.items():
        for one in needs:
            lines_of.setdefault((name, one.name), []).append(one)
    for (name, wanted), several in lines_of.items():
        # Of several lines the one with the fewest conditions is the reason.
        one = min(
            several, key=lambda item: (not _active(item, extras.get(name, ())), item.extra or "")
        )
        active = _active(one, extras.get(name, ())) or name in via.get(wanted, ())
        if name == wanted:
            continue  # `acme[all]` requires `acme[a,b]`: extras of its own.
        told.add((name, wanted))
        condition = one.marker if one.extra is None else f"extra {one.extra}"
        yield Edge(
            "requires",
            node_id(name),
            node_id(wanted),
            text=one.line.partition(";")[0].strip(),
            condition=condition,
            certain=active,
        )
    for wanted, askers in via.items():
        for name in askers:
            if name in via and (name, wanted) not in told:
                yield Edge("requires", node_id(name), node_id(wanted), text="the lock says so")


def _active(one: Requires, extras: Iterable[str]) -> bool:
    return one.extra is None or one.extra in extras
