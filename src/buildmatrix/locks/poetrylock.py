"""`poetry.lock` (lock versions 1.0 to 2.x), as one target would install it.

Format: `poetry/packages/locker.py`. The lock names files and hashes, and no addresses; the
project's requirements are only in the `pyproject.toml` beside it. Since 2.1 each entry has its
groups and markers. An older lock does not: `poetry install` resolves the project again with the
entries of the lock as its only index (`poetry/installation/installer.py`), and so does this.
Without a project, all entries of an older lock for the selected groups count.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.text import without_login
from buildmatrix.base.toml import mapping, string, strings, tables, tool_table
from buildmatrix.locks.lines import sha256_digits
from buildmatrix.locks.lock_file import InconsistentLock, LockEdge, LockEntry, LockFile
from buildmatrix.locks.model import Lock, Package, Sdist, Wheel
from buildmatrix.locks.poetry_resolution import (
    SOURCE_KINDS,
    Resolution,
    Root,
    allows_version,
    find_askers,
    python_marker,
)
from buildmatrix.locks.projects import Project, expand, find_project, line_of_key
from buildmatrix.locks.selection import BrokenMarker, LockSelection

_HINT = "run `poetry lock`"
#: Group of the runtime requirements.
_MAIN = "main"
#: Name at the start of a requirement that a lock lists for an extra: `trio (>=0.32.0)`.
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def read(file: LockFile) -> Lock:
    """Return the packages of a target; raises `SpecError`."""
    selection, document, target = file.selection, file.document, file.selection.target
    metadata = mapping(document.get("metadata"))
    version = string(metadata.get("lock-version")) or "1.0"
    if version.split(".")[0] not in ("1", "2"):
        problem = f"its `lock-version` is {version!r}, and only 1.x and 2.x can be read"
        raise SpecError([Problem(problem, selection.label)])
    pythons = string(metadata.get("python-versions")) or "*"
    # As for other locks, only the minor version counts.
    if not any(allows_version(pythons, f"{target.python}.{patch}") for patch in range(100)):
        problem = f"the lock is for Python {pythons}, and {target.id} has {target.python}"
        raise SpecError([Problem(problem, selection.label)])
    entries = file.entries(_read_dependencies, lambda _: ())
    project = find_project(*selection.beside("pyproject.toml"))
    if project is not None:
        poetry = tool_table(project.document, "poetry")
        extras = {*project.extras, *map(canonicalize_name, mapping(poetry.get("extras")))}
        groups = {*_read_groups(project), *project.groups} - {_MAIN}
        # `poetry install` skips these.
        optional = {
            canonicalize_name(name)
            for name, group in mapping(poetry.get("group")).items()
            if mapping(group).get("optional") is True
        }
        selection.check(extras, groups)
        selection = selection.with_defaults(groups - optional)
    else:
        extras = {*mapping(document.get("extras"))}
        groups = {name for entry in entries for name in strings(entry.table.get("groups"))}
        groups -= {_MAIN}
        selection.check(extras, groups or selection.groups | selection.without)
    left_out = selection.left_out(extras, groups)
    try:
        roots = list(_iter_roots(selection, project)) if project is not None else []
        if version in ("1", "2") or version.startswith(("1.", "2.0")):
            chosen = _resolve(selection, document, entries, project, roots)
        else:
            chosen = _select_marked(selection, entries)
        askers = find_askers(selection, [*roots, *(Root("", LockEdge(n)) for n in chosen)], chosen)
    except (InconsistentLock, BrokenMarker) as error:
        raise SpecError([Problem(str(error), selection.label, hint=_HINT)]) from error
    files = mapping(metadata.get("files"))
    return file.lock(
        (
            _make_package(
                entry, askers[name], files.get(string(entry.table.get("name"))), selection
            )
            for name, entry in sorted(chosen.items())
        ),
        left_out,
    )


def _select_groups(selection: LockSelection) -> set[str]:
    return {*selection.groups, *([_MAIN] if selection.has_main else [])}


def _select_marked(selection: LockSelection, entries: Sequence[LockEntry]) -> dict[str, LockEntry]:
    """Return entries with groups and markers of the selection, by name."""
    groups = _select_groups(selection)
    chosen: dict[str, LockEntry] = {}
    for entry in entries:
        markers = entry.table.get("markers")
        of_group = mapping(markers)
        asked = [
            name for name in strings(entry.table.get("groups")) if canonicalize_name(name) in groups
        ]
        texts = [markers] if isinstance(markers, str) else [of_group.get(name) for name in asked]
        if not asked or not any(
            selection.fits(string(text) or None, selection.extras) for text in texts
        ):
            continue
        other = chosen.setdefault(entry.name, entry)
        if other is not entry:
            both = f"{other.version} and {entry.version}"
            raise InconsistentLock(f"it holds {entry.name} {both} for one selection")
    return chosen


def _resolve(
    selection: LockSelection,
    document: Mapping[str, object],
    entries: Sequence[LockEntry],
    project: Project | None,
    roots: Sequence[Root],
) -> dict[str, LockEntry]:
    """Resolve the project again as Poetry does; return the chosen entries by name."""
    listed = {
        canonicalize_name(name)
        for extra, names in mapping(document.get("extras")).items()
        if canonicalize_name(extra) in selection.extras
        for name in strings(names)
    }
    if project is None:
        groups = {"", *_select_groups(selection)}
        late = [
            entry.name
            for entry in entries
            if (entry.name in listed or entry.table.get("optional") is not True)
            and string(entry.table.get("category")) in groups
        ]
        return Resolution(selection, entries, "").solve((), late)
    poetry = tool_table(project.document, "poetry")
    own = project.name or canonicalize_name(string(poetry.get("name")))
    resolution = Resolution(selection, entries, own)
    solution = resolution.solve(roots)
    # Poetry takes requirements reachable through an extra as required even if one for another
    # platform or Python names them.
    required_roots = [
        replace(root, edge=replace(root.edge, marker=None))
        for root in roots
        if not root.is_optional and resolution.is_met(root.edge)
    ]
    required = find_askers(selection, required_roots, solution)
    queue, reachable = sorted(listed), {*listed}
    by_name = {entry.name: entry for entry in entries}
    for name in queue:  # grows while it is walked
        # Poetry takes everything reachable through an extra, also through entries for other
        # targets. Of several entries, it looks at the last.
        if name in by_name:
            names = map(canonicalize_name, mapping(by_name[name].table.get("dependencies")))
            new = {*names} - reachable
            reachable |= new
            queue += new
    wanted = {*required, *reachable}
    return {name: entry for name, entry in solution.items() if name in wanted}


def _iter_roots(selection: LockSelection, project: Project) -> Iterator[Root]:
    """Yield the project's requirements, in `[project]` and in `[tool.poetry]`."""
    for requirement in expand(
        project, {"", *selection.extras, *(f":{group}" for group in selection.groups)}
    ):
        marker = str(requirement.parsed.marker) if requirement.parsed.marker else None
        extras = frozenset(map(canonicalize_name, requirement.parsed.extras))
        edge = LockEdge(requirement.name, extras, marker, allows=str(requirement.parsed.specifier))
        yield Root(project.place(requirement), edge)
    named = {requirement.name for requirement in project.requirements if not requirement.part}
    for group, dependencies in _read_groups(project).items():
        if group not in _select_groups(selection):
            continue
        table = "tool.poetry.dependencies" if group == _MAIN else f"tool.poetry.group.{group}"
        for name, value in dependencies.items():
            key = canonicalize_name(name)
            # Beside `[project]`, the table only names the sources of distributions.
            if key == "python" or (group == _MAIN and key in named):
                continue
            place = f"{project.label}:{line_of_key(project.text, name, table)}"
            for edge, is_optional in _iter_edges(name, value):
                yield Root(place, edge, is_optional)


def _read_groups(project: Project) -> dict[str, Mapping[str, object]]:
    poetry = tool_table(project.document, "poetry")
    groups = {_MAIN: mapping(poetry.get("dependencies"))}
    if "dev-dependencies" in poetry:
        groups["dev"] = mapping(poetry["dev-dependencies"])
    for name, group in mapping(poetry.get("group")).items():
        groups[canonicalize_name(name)] = mapping(mapping(group).get("dependencies"))
    return groups


def _read_dependencies(item: Mapping[str, object]) -> Mapping[str, tuple[LockEdge, ...]]:
    """Return the requirements of an entry; optional ones belong to the extras that list them."""
    listed = {
        canonicalize_name(extra): {
            canonicalize_name(match[1]) for text in strings(names) if (match := _NAME.match(text))
        }
        for extra, names in mapping(item.get("extras")).items()
    }
    dependencies: dict[str, list[LockEdge]] = {"": [], **{extra: [] for extra in listed}}
    for name, value in mapping(item.get("dependencies")).items():
        for edge, is_optional in _iter_edges(name, value):
            for extra in (
                [extra for extra, names in listed.items() if edge.name in names]
                if is_optional
                else [""]
            ):
                dependencies[extra].append(edge)
    return {extra: tuple(edges) for extra, edges in dependencies.items()}


def _iter_edges(name: str, value: object) -> Iterator[tuple[LockEdge, bool]]:
    """Yield the edges of one key of a table of dependencies, and True for optional ones."""
    for item in value if isinstance(value, list) else [value]:
        table = mapping(item)
        marker = string(table.get("markers")) or None
        python = string(table.get("python"))
        if python and (condition := python_marker(python)):
            marker = f"({marker}) and ({condition})" if marker else condition
        extras = frozenset(map(canonicalize_name, strings(table.get("extras"))))
        allowed = item if isinstance(item, str) else string(table.get("version"))
        source: object = string(table.get("source")).lower() or None
        for kind in SOURCE_KINDS:
            if kind in table:
                source = kind, table[kind]
        edge = LockEdge(canonicalize_name(name), extras, marker, source=source, allows=allowed)
        yield edge, table.get("optional") is True


def _make_package(
    entry: LockEntry, askers: tuple[str, ...], old: object, selection: LockSelection
) -> Package:
    source = mapping(entry.source)
    kind, url = string(source.get("type")), string(source.get("url"))
    named = entry.table.get("files", old)
    files = [
        (string(file.get("file")), sha256_digits(string(file.get("hash"))))
        for file in tables(named)
    ]
    wheels = tuple(
        Wheel(
            filename=name,
            url=url if kind in ("url", "file") and posixpath.basename(url) == name else "",
            sha256=digest,
        )
        for name, digest in files
        if name.endswith(".whl") and "/" not in name
    )
    archives = [file for file in files if not file[0].endswith(".whl") and "/" not in file[0]]
    pythons, target = string(entry.table.get("python-versions")) or "*", selection.target
    # Poetry 2 locks such entries, and installs them; an index offers them to no other tool.
    is_offered = allows_version(pythons, selection.environment["python_full_version"])
    reference = string(source.get("resolved_reference")) or string(source.get("reference"))
    origin = {
        "git": f"git+{url}@{reference}",
        "url": url,
        "file": url,
        "directory": url,
    }.get(kind, "")
    return Package(
        name=entry.name,
        version=entry.version,
        index=without_login(url) if kind == "legacy" else None,
        wheels=wheels,
        source_only=not wheels,
        via=askers,
        place=entry.place,
        source="" if wheels else without_login(origin),
        unknown=""
        if is_offered
        else f"it is for Python {pythons}, and {target.id} has {target.python}",
        sdist=Sdist(archives[0][0], url if kind == "url" else "", archives[0][1])
        if archives
        else None,
    )
