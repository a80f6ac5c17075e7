"""Requirements as edges of a graph, from installed metadata and from a lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from buildmatrix.locks.requires import Requires
from buildmatrix.reports.why.model import Edge, node_id


def make_requirement_edges(
    requires: Mapping[str, tuple[Requires, ...]],
    extras: Mapping[str, set[str]],
    via: Mapping[str, tuple[str, ...]],
) -> Iterator[Edge]:
    """Yield requirements from metadata, and those only in the lock."""
    seen: set[tuple[str, str]] = set()
    lines_of: dict[tuple[str, str], list[Requires]] = {}
    for name, needs in requires.items():
        for need in needs:
            lines_of.setdefault((name, need.name), []).append(need)
    for (name, wanted), several in lines_of.items():
        # Of several lines, the one with the fewest conditions is the reason.
        need = min(
            several, key=lambda item: (not _is_active(item, extras.get(name, ())), item.extra or "")
        )
        active = _is_active(need, extras.get(name, ())) or name in via.get(wanted, ())
        if name == wanted:
            continue  # `acme[all]` requires `acme[a,b]`, which are its own extras.
        seen.add((name, wanted))
        condition = need.marker if need.extra is None else f"extra {need.extra}"
        yield Edge(
            "requires",
            node_id(name),
            node_id(wanted),
            text=need.line.partition(";")[0].strip(),
            condition=condition,
            certain=active,
        )
    for wanted, askers in via.items():
        for name in askers:
            if name in via and (name, wanted) not in seen:
                yield Edge("requires", node_id(name), node_id(wanted), text="the lock says so")


def _is_active(requires: Requires, extras: Iterable[str]) -> bool:
    return requires.extra is None or requires.extra in extras
