"""Listings of the catalogue's entries, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from buildmatrix.catalogue.entries import CatalogueEntry
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import unknown_backend
from buildmatrix.catalogue.tables import DataFile, iter_entries

SCHEMA = "buildmatrix/catalogue/1"

#: Keys that identify an entry of a table; in any other table, the first key.
_KEYS = (
    *("names", "pattern", "paths", "formats", "kinds", "architectures", "family", "marks"),
    *("shared", "files", "nodes", "folders"),
    *("variables", "groups", "packages", "rpm-packages", "library-folders", "features"),
)
#: Keys with the meaning of an entry.
_MEANINGS = ("role", "kind", "weight", "where", "toolkit", "basis")
#: Characters per line for the names of an entry.
_WIDEST = 100


def find_backend(name: str, catalogue: Catalogue) -> str:
    """Return the backend with this name or alias. Raises `UsageError`."""
    if name in catalogue.backends:
        return name
    for entry in catalogue.backends.values():
        if name in entry.aliases:
            return entry.name
    raise unknown_backend(name, catalogue.backends)


def document(catalogue: Catalogue, backend: str | None = None) -> dict[str, Any]:
    """Return everything about `backend`, or about all, ready for JSON; sources in words."""
    return {
        "schema": SCHEMA,
        "date": catalogue.date,
        "backends": [
            {
                "name": entry.name,
                "vendor": entry.vendor,
                "title": entry.title,
                "aliases": list(entry.aliases),
                "entries": [
                    {"file": file, "table": table, **_plain(item, data)}
                    for file, data, table, item in _entries(catalogue, entry.name)
                ],
            }
            for entry in catalogue.backends.values()
            if backend in (None, entry.name)
        ],
    }


def overview(catalogue: Catalogue) -> tuple[tuple[str, str, str, str], ...]:
    """Return name, vendor, title and number of entries per backend."""
    return tuple(
        (
            entry.name,
            entry.vendor or "",
            entry.title,
            str(sum(1 for _ in _entries(catalogue, entry.name))),
        )
        for entry in sorted(catalogue.backends.values(), key=lambda entry: entry.name)
    )


def lines(catalogue: Catalogue, backend: str) -> Iterator[str]:
    """Yield the entries of one backend, a line each, table by table."""
    entry = catalogue.backends[backend]
    also = f"; also called {', '.join(entry.aliases)}" if entry.aliases else ""
    vendor = f" ({entry.vendor})" if entry.vendor else ""
    yield f"{entry.name}: {entry.title}{vendor}{also}"
    previous = None
    for _, _, table, item in sorted(_entries(catalogue, backend), key=lambda item: item[2]):
        if table != previous:
            yield f"\n{table}"
            previous = table
        values = msgspec.to_builtins(item)
        meanings = [str(values[key]) for key in _MEANINGS if values.get(key)]
        yield f"  {_identify(table, values)}  [{' '.join(meanings)}]"


def _identify(table: str, values: dict[str, Any]) -> str:
    first = next(key for key, value in values.items() if value)
    key = "name" if table == "static" else next((key for key in _KEYS if values.get(key)), first)
    names = values[key]
    text = " ".join(map(str, names)) if isinstance(names, tuple | list | dict) else str(names)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _entries(
    catalogue: Catalogue, backend: str
) -> Iterator[tuple[str, DataFile, str, CatalogueEntry]]:
    """Yield file, its data, table and entry, in the order of the files."""
    for name, data in catalogue.files.items():
        if data.backend == backend:
            for table, _, entry in iter_entries(data):
                yield name, data, table, entry


def _plain(entry: CatalogueEntry, data: DataFile) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    plain["source"] = [data.sources[key] for key in entry.source]
    plain["checked"] = (entry.checked or data.checked).isoformat()
    return plain
