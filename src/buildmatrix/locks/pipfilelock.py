"""`Pipfile.lock`, as one target would install it.

Format: https://pipenv.pypa.io/ and `plette/lockfiles.py`. The lock has hashes without file names,
and no edges: only requirements in the `Pipfile` beside it have a line to refer to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.utils import canonicalize_name

from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.text import without_login
from buildmatrix.base.toml import mapping, string, strings, tables
from buildmatrix.locks.lock_file import LockFile
from buildmatrix.locks.model import Lock, Package
from buildmatrix.locks.projects import line_of_key
from buildmatrix.locks.selection import BrokenMarker, LockSelection
from buildmatrix.locks.text import check_count, decode, load_toml, read_bytes, sha256_digits

_HINT = "run `pipenv lock`"
#: Section of the lock → section of the `Pipfile`; further categories have equal names.
_SECTIONS = {"default": "packages", "develop": "dev-packages"}
_KEY = re.compile(r'(    |        )"([^"\\]+)": ')
#: Groups that select the section `develop`.
_DEV = ("dev", "develop", "dev-packages")


def read_pipfile_lock(file: LockFile) -> tuple[Lock, Mapping[str, frozenset[str]]]:
    """Return packages of `default` and of the selected groups, and name → allowed hashes.

    Raises `SpecError`.
    """
    selection, document = file.selection, file.document
    meta = mapping(document.get("_meta"))
    if not meta or "default" not in document:
        raise SpecError([Problem("it has no `_meta` or no `default`", selection.label, hint=_HINT)])
    categories = [name for name in document if name not in ("_meta", "default")]
    selection.check((), {*categories, *(_DEV if "develop" in categories else ())})
    sections = ["default"] * selection.has_main + [
        name
        for name in categories
        if canonicalize_name(name) in selection.groups
        or (name == "develop" and not selection.groups.isdisjoint(_DEV))
    ]
    check_count(sum(len(mapping(document.get(section))) for section in sections), selection.label)
    packages: dict[str, Package] = {}
    hashes: dict[str, frozenset[str]] = {}
    lines = _lines(file.text)
    sources = {
        string(source.get("name")): string(source.get("url"))
        for source in tables(meta.get("sources"))
    }
    for section in sections:
        places = _requested_places(selection, _SECTIONS.get(section, section))
        for name, item in mapping(document.get(section)).items():
            line = lines.get((section, name))
            package = _locked_package(selection, name, mapping(item), line, sources, places)
            before = packages.get(package.name) if package is not None else None
            # pip installs the sections one after the other: the last version remains.
            if package is not None and (before is None or before.version != package.version):
                packages[package.name] = package
                hashes[package.name] = _hashes(selection, name, mapping(item), line)
    empty = {name for name in categories if not document[name]}
    left_out = selection.left_out((), {*categories} - {*sections} - empty)
    return file.lock((packages[name] for name in sorted(packages)), left_out), hashes


def _hashes(
    selection: LockSelection, name: str, item: Mapping[str, object], line: int | None
) -> frozenset[str]:
    """Return the sha256 hashes of an entry, in hex; empty if it allows every file.

    Raises `SpecError` for unknown kinds of hashes: these must not allow every file either.
    """
    listed = item.get("hashes")
    if listed is None or listed == []:
        return frozenset()
    digests = frozenset(filter(None, map(sha256_digits, strings(listed))))
    if not digests:
        problem = f"package `{name}`: none of its `hashes` is a `sha256:` with 64 hex digits"
        raise SpecError([Problem(problem, selection.label, line, hint=_HINT)])
    return digests


def _locked_package(
    selection: LockSelection,
    key: str,
    item: Mapping[str, object],
    line: int | None,
    sources: Mapping[str, str],
    places: Mapping[str, str],
) -> Package | None:
    name = canonicalize_name(key)
    try:
        if not selection.fits(string(item.get("markers")) or None):
            return None
    except BrokenMarker as error:
        problem = f"package `{name}`: its `markers` are not valid: {error}"
        raise SpecError([Problem(problem, selection.label, line)]) from error
    pin = string(item.get("version"))
    origin = _origin(item)
    if not pin.startswith("==") and not origin:
        problem = f"package `{name}`: `version` is {pin!r}, and must be one version, `==1.2`"
        raise SpecError([Problem(problem, selection.label, line, hint=_HINT)])
    index = sources.get(string(item.get("index")))
    return Package(
        name=name,
        version=selection.check_version(pin.removeprefix("=="), name, line),
        index=without_login(index) if index else None,
        wheels=(),
        source_only=bool(origin),
        via=(places[name],) if name in places else (),
        place=f"{selection.label}:{line}" if line else "",
        source=without_login(origin),
    )


def _origin(item: Mapping[str, object]) -> str:
    for key in ("git", "hg", "svn", "bzr"):
        if key in item:
            return f"{key}+{string(item[key])}@{string(item.get('ref'))}"
    return string(item.get("path")) or string(item.get("file"))


def _requested_places(selection: LockSelection, section: str) -> Mapping[str, str]:
    """Return name → `Pipfile:line` of its requirements; empty without a `Pipfile`."""
    path, label = selection.beside("Pipfile")
    try:
        text = decode(read_bytes(path, label, None), label)
        names = mapping(load_toml(text, label, None).get(section))
    except SpecError:
        return {}
    return {
        canonicalize_name(name): f"{label}:{line_of_key(text, name, section)}" for name in names
    }


def _lines(text: str) -> Mapping[tuple[str, str], int]:
    """Return (section, name) → line, in pipenv's layout: one key per line, indented by four."""
    lines: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if match := _KEY.match(line):
            if len(match[1]) == 4:
                section = match[2]
            else:
                lines.setdefault((section, match[2]), number)
    return lines
