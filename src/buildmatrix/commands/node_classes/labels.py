"""Meaning of a node's labels and resources, by the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.catalogue.load import Owned
from buildmatrix.catalogue.names import GlobIndex
from buildmatrix.catalogue.tables import NodeField, NodeLabel

#: Longest key with value of a label (Kubernetes: 317 and 63 characters), and name of a resource.
#: Patterns of the catalogue are not tried on longer ones.
LONGEST = 512


@dataclass(frozen=True, slots=True)
class Statement:
    """Value of one field from one label."""

    backend: str
    field: NodeField
    #: Position of the entry: the first entry with a value wins.
    rank: int
    value: str
    form: str
    part: int
    key: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of one field of one backend from a node's labels."""

    values: tuple[str, ...]
    #: The labels with these values.
    keys: tuple[str, ...]


class Labels:
    """One table of the catalogue, cached by key since most nodes have the same labels."""

    def __init__(self, entries: Sequence[Owned[NodeLabel]]) -> None:
        self._index = GlobIndex(
            (glob, (rank, glob, owned))
            for rank, owned in enumerate(entries)
            for glob in owned.entry.names
        )
        self._by_key: dict[str, Sequence[tuple[int, Owned[NodeLabel]]]] = {}

    def entries(self, key: str) -> Sequence[tuple[int, Owned[NodeLabel]]]:
        """Return the entries for a key, in order: those with the most exact glob."""
        entries = self._by_key.get(key)
        if entries is None:
            matching = self._index.find(key) if len(key) <= LONGEST else ()
            best = matching[0][1] if matching else None
            entries = sorted(
                ((rank, owned) for rank, glob, owned in matching if glob == best),
                key=lambda item: item[0],
            )
            if len(self._by_key) < 100_000:
                self._by_key[key] = entries
        return entries

    def says(self, key: str) -> bool:
        """True if a label with this key can determine a field of a class."""
        return any(owned.entry.field not in ("known", "unknown") for _, owned in self.entries(key))

    def is_unknown(self, key: str) -> bool:
        """True if a key looks like an accelerator's, and is otherwise unknown."""
        entries = self.entries(key)
        return bool(entries) and all(owned.entry.field == "unknown" for _, owned in entries)

    def statements(self, key: str, value: str) -> Iterable[Statement]:
        """Yield the statements of one label."""
        for rank, owned in self.entries(key):
            entry = owned.entry
            said = value
            if entry.pattern is not None:
                text = f"{key}={value}"
                match = re.fullmatch(entry.pattern, text) if len(text) <= LONGEST else None
                if match is None:
                    continue
                said = match.groupdict().get("value") or ""
            yield Statement(
                owned.backend, entry.field, rank, said, entry.form or "", entry.part, key
            )


def make_readings(statements: Iterable[Statement]) -> Mapping[tuple[str, NodeField], Reading]:
    """Return the reading of the first usable source for each backend and field.

    The labels of one form are one source: a major version without a minor is unusable.
    """
    sources: dict[tuple[str, NodeField], dict[object, list[Statement]]] = {}
    for statement in sorted(statements, key=lambda item: item.rank):
        field = sources.setdefault((statement.backend, statement.field), {})
        # Different spellings of a form (`cuda.driver-version.*` and `cuda.driver.*`) are different
        # sources, identified by the common part of their keys.
        is_part = statement.part > 0
        source = statement.key.rpartition(".")[0] if is_part else statement.rank
        field.setdefault(source, []).append(statement)
    table: dict[tuple[str, NodeField], Reading] = {}
    for place, groups in sources.items():
        for group in groups.values():
            values = tuple(filter(None, _combine_parts(group)))
            if values:
                keys = tuple(dict.fromkeys(item.key for item in group))
                table[place] = Reading(values, keys)
                break
    return table


def _combine_parts(group: Sequence[Statement]) -> Iterable[str]:
    form = group[0].form
    if not form:
        return [item.value for item in group]
    wanted = set(re.findall(r"\{(\d)\}", form))
    parts = {str(item.part): item.value for item in group if item.part}
    if not wanted <= parts.keys() or ("1" in wanted and not parts["1"]):
        return ()
    text = re.sub(r"\{(\d)\}", lambda match: parts[match[1]], form)
    # The last part of a version may be empty.
    return (re.sub(r"\.+$", "", text),)
