"""The settings of uv in a project that decide what is resolved.

An audit runs uv in a folder of its own, so that nothing else in a project that is not reviewed
yet takes effect: `[tool.uv.pip] python`, for example, names a program that uv would run.
Keys: https://docs.astral.sh/uv/reference/settings/.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.errors import SpecError
from buildmatrix.locks.markers import BrokenMarker
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.text import read_toml
from buildmatrix.locks.uv_errors import REQUEST_PROJECT
from buildmatrix.toml import mapping, string, tool_table, written

_RESOLUTION_KEYS = (
    "index",
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
    "index-strategy",
    "constraint-dependencies",
    "override-dependencies",
    "exclude-dependencies",
    "dependency-metadata",
    "prerelease",
    "resolution",
    "exclude-newer",
    "exclude-newer-package",
)
#: Settings whose values are addresses or paths that start from the project.
_PLACES = ("index-url", "extra-index-url", "find-links")


def settings_of(folder: Path) -> Mapping[str, object]:
    """The settings in `folder` that decide what is resolved.

    Of `uv.toml`, else of `[tool.uv]` in `pyproject.toml`. Raises `SpecError` for a file that is
    there and no TOML.
    """
    table = _table(folder) or {}
    return {key: _rooted(key, table[key], folder) for key in _RESOLUTION_KEYS if key in table}


def settings_above(folder: Path) -> Mapping[str, object]:
    """All settings that a uv that runs in `folder` takes from there, or from the nearest above."""
    for place in (folder.absolute(), *folder.absolute().parents):
        try:
            table = _table(place)
        except SpecError:
            continue  # uv says so
        if table is not None:
            return table
    return {}


def _table(folder: Path) -> Mapping[str, object] | None:
    for name in ("uv.toml", "pyproject.toml"):
        path = folder / name
        if not path.is_file():
            continue
        document = read_toml(path, name)
        if name == "uv.toml":
            return document
        if "uv" in mapping(document.get("tool")):
            return mapping(mapping(document["tool"])["uv"])
    return None


def source_of(
    name: str, project: Mapping[str, object], selection: LockSelection
) -> Mapping[str, object]:
    """The entry of `[tool.uv.sources]` that holds for a distribution; empty for none."""
    sources = mapping(tool_table(project, "uv").get("sources"))
    for key, value in sources.items():
        if canonicalize_name(key) != name:
            continue
        for item in value if isinstance(value, list) else [value]:
            entry = mapping(item)
            extra, group = string(entry.get("extra")), string(entry.get("group"))
            if extra and canonicalize_name(extra) not in selection.extras:
                continue
            if group and canonicalize_name(group) not in selection.groups:
                continue
            try:
                if selection.fits(string(entry.get("marker")) or None):
                    return entry
            except BrokenMarker:
                continue  # uv reports it where it matters.
    return {}


def project_text(
    bound: Mapping[str, str],
    settings: Mapping[str, object],
    lines: list[str],
    name: str = REQUEST_PROJECT,
) -> str:
    """A `pyproject.toml` that asks for `lines`, with those settings and bindings."""
    sources = {distribution: {"index": index} for distribution, index in sorted(bound.items())}
    document = {
        "project": {"name": name, "version": "0", "dependencies": lines},
        "tool": {"uv": {**settings, "sources": sources}},
    }
    return "".join(f"{key} = {written(value)}\n" for key, value in document.items())


def _rooted(key: str, value: object, folder: Path) -> object:
    if key == "index":
        items = value if isinstance(value, list) else []
        return [
            {
                name: _place(content, folder) if name == "url" else content
                for name, content in item.items()
            }
            for item in items
            if isinstance(item, dict)
        ]
    if key in _PLACES:
        return (
            [_place(content, folder) for content in value]
            if isinstance(value, list)
            else _place(value, folder)
        )
    return value


def _place(value: object, folder: Path) -> object:
    if not isinstance(value, str) or "://" in value:
        return value
    return str((folder / value).resolve())
