"""Whether a committed lock of another tool still fits its inputs.

Each tool records something else: uv what the projects asked for, Poetry and pipenv a hash of the
project's tables, pip-compile only the name of its input. What a tool does not record is not known,
and not knowing is no staleness.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from buildmatrix.errors import SpecError
from buildmatrix.locks.ask import Ask
from buildmatrix.locks.command import command_of, input_file
from buildmatrix.locks.lines import Line
from buildmatrix.locks.model import Lock
from buildmatrix.locks.projects import Project, expand, read_project
from buildmatrix.locks.text import decode, load_toml, mapping, read_bytes, string, strings, tables
from buildmatrix.locks.uvlock import own_folder, roots_of
from buildmatrix.locks.wanted import applies, read_wanted
from buildmatrix.parsing import parse_json, parse_specifiers, parse_version


def uv_staleness(ask: Ask) -> str | None:
    """Why `uv.lock` does not fit the projects that it locks; None when it does, or none is here."""
    text = decode(read_bytes(ask.path, ask.label, None), ask.label)
    document = load_toml(text, ask.label, None)
    for root in roots_of(document):
        folder = own_folder(root)
        path, label = ask.beside(posixpath.normpath(posixpath.join(folder, "pyproject.toml")))
        project = _project(path, label)
        metadata = root.get("metadata")
        if project is None or not isinstance(metadata, dict):
            continue
        if why := _uv_difference(project, metadata, ask.label):
            return why
    return None


def poetry_staleness(ask: Ask) -> str | None:
    """Why `poetry.lock` does not fit `pyproject.toml`: by the hash that Poetry itself compares."""
    project = _project(*ask.beside("pyproject.toml"))
    document = load_toml(decode(read_bytes(ask.path, ask.label, None), ask.label), ask.label, None)
    recorded = string(mapping(document.get("metadata")).get("content-hash"))
    if project is None or not recorded or recorded in _poetry_hashes(project.document):
        return None
    return f"{project.label} changed since {ask.label} was made"


def pipenv_staleness(ask: Ask) -> str | None:
    """Why `Pipfile.lock` does not fit the `Pipfile`: by the hash that pipenv itself compares."""
    path, label = ask.beside("Pipfile")
    try:
        document = load_toml(decode(read_bytes(path, label, None), label), label, None)
        lock = mapping(parse_json(decode(read_bytes(ask.path, ask.label, None), ask.label)))
    except (SpecError, json.JSONDecodeError):
        return None
    recorded = string(mapping(mapping(lock.get("_meta")).get("hash")).get("sha256"))
    if not recorded or recorded == _pipfile_hash(document):
        return None
    return f"{label} changed since {ask.label} was made"


def pinned_staleness(ask: Ask, lock: Lock) -> str | None:
    """Why pinned requirements do not fit the inputs that their header names."""
    text = decode(read_bytes(ask.path, ask.label, None), ask.label)
    pins = {package.name: package.version for package in lock.packages}
    here = {package.place.partition(":")[0]: None for package in lock.packages}
    asked: set[str] = set()
    inputs: list[str] = []
    command = command_of(text)
    for file in command.files if command is not None else ():
        found = input_file(ask, file)
        if found is None or found[1] in here:
            continue
        try:
            lines = list(_lines(*found))
        except SpecError:
            return None  # Whoever resolves it says what is wrong with it.
        inputs.append(found[1])
        for line in lines:
            asked.add(line.name)
            if not applies(line, ask.environment):
                continue
            if why := _unmet(line, pins):
                return f"{why}, and {ask.label} {_has(line.name, pins)}"
    for package in lock.packages:
        named = [via for via in package.via if via in inputs]
        if named and package.name not in asked:
            return f"{ask.label} has {package.name} for {named[0]}, which asks for it no more"
    return None


def _project(path: Path, label: str) -> Project | None:
    try:
        return read_project(path, label)
    except SpecError:
        return None


# uv.lock


def _uv_difference(project: Project, metadata: Mapping[str, object], label: str) -> str | None:
    now: dict[tuple[str, str], set[tuple[frozenset[str], str]]] = {}
    for part in {said.part for said in project.said}:
        for said in expand(project, {part}):
            now.setdefault((part, said.name), set()).add(_wish(said.requirement))
    then: dict[tuple[str, str], set[tuple[frozenset[str], str]]] = {}
    for part, item in _flat(list(_recorded(metadata)), project.name):
        key = part, canonicalize_name(string(item.get("name")))
        then.setdefault(key, set()).add(_recorded_wish(item))
    for part, name in sorted({*now, *then}):
        where = f" in `{part.lstrip(':')}`" if part else ""
        if (part, name) not in now:
            return f"{project.label} asks for {name}{where} no more, and {label} still has it"
        if (part, name) not in then:
            return f"{project.label} asks for {name}{where}, and {label} was made without it"
        was, wants = then[part, name], now[part, name]
        # What is taken from an address has no range to compare.
        if "" in {ranged for _, ranged in was | wants} and _named_elsewhere(metadata, name):
            continue
        if was != wants:
            return (
                f"{project.label} asks for {_shown(name, wants)}{where}, and {label} was made for "
                f"{_shown(name, was)}"
            )
    return None


def _recorded(metadata: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for item in tables(metadata.get("requires-dist")):
        found = re.search(r"extra == '([^']+)'", string(item.get("marker")))
        yield canonicalize_name(found[1]) if found else "", item
    for group, items in mapping(metadata.get("requires-dev")).items():
        for item in tables(items):
            yield f":{canonicalize_name(group)}", item


def _flat(
    recorded: Sequence[tuple[str, Mapping[str, object]]], own: str
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """What each part asks for, with the project's own extras expanded.

    Some releases of uv, and some build backends, write down what `all = ["acme[docs]"]` comes to,
    others what it says: both are the same.
    """
    by_part: dict[str, list[Mapping[str, object]]] = {}
    for part, item in recorded:
        by_part.setdefault(part, []).append(item)
    for part in by_part:
        reached = [part]
        for other in reached:  # grows while it is walked
            for item in by_part.get(other, ()):
                if canonicalize_name(string(item.get("name"))) != own:
                    yield part, item
                    continue
                extras = sorted(map(canonicalize_name, strings(item.get("extras"))))
                reached += [extra for extra in extras if extra not in reached]


def _named_elsewhere(metadata: Mapping[str, object], name: str) -> bool:
    return any(
        canonicalize_name(string(item.get("name"))) == name
        and any(key in item for key in ("url", "git", "path", "directory", "editable", "virtual"))
        for _, item in _recorded(metadata)
    )


def _wish(requirement: Requirement) -> tuple[frozenset[str], str]:
    extras = frozenset(map(canonicalize_name, requirement.extras))
    return extras, _range(str(requirement.specifier))


def _recorded_wish(item: Mapping[str, object]) -> tuple[frozenset[str], str]:
    extras = item.get("extras")
    names = [one for one in extras if isinstance(one, str)] if isinstance(extras, list) else []
    return frozenset(map(canonicalize_name, names)), _range(string(item.get("specifier")))


def _range(text: str) -> str:
    """A range in one form: tools order its parts differently."""
    try:
        return ",".join(sorted(str(one) for one in parse_specifiers(text)))
    except InvalidSpecifier:
        return text


def _shown(name: str, wishes: set[tuple[frozenset[str], str]]) -> str:
    extras, ranged = min(wishes, key=lambda wish: (wish[1], sorted(wish[0])))
    shown = f"[{','.join(sorted(extras))}]" if extras else ""
    return f"{name}{shown}{ranged}"


# poetry.lock


def _poetry_hashes(document: Mapping[str, object]) -> set[str]:
    """The hashes that some release of Poetry records for a project.

    Source: `Locker._get_content_hash` of Poetry 1.8 and 2.5; only newer ones count the groups.
    """
    project = mapping(document.get("project"))
    poetry = mapping(mapping(document.get("tool")).get("poetry"))
    groups = mapping(document.get("dependency-groups"))
    old = ("dependencies", "source", "extras", "dev-dependencies")
    kept = {
        key: project[key]
        for key in ("requires-python", "dependencies", "optional-dependencies")
        if project.get(key) is not None
    }

    def digest(with_project: bool, with_groups: bool) -> str:
        content: dict[str, object] = {}
        if with_project and kept:
            content["project"] = kept
        if with_groups and groups:
            content["dependency-groups"] = groups
        mine = {
            key: poetry.get(key)
            for key in (*old, "group")
            if poetry.get(key) is not None or (key in old and not content)
        }
        content = {**content, "tool": {"poetry": mine}} if content else mine
        return hashlib.sha256(_json(content).encode()).hexdigest()

    return {digest(True, True), digest(True, False), digest(False, False)}


def _json(value: object, separators: tuple[str, str] | None = None) -> str:
    # A date is no JSON: such a table is never one that these tools hash.
    return json.dumps(value, sort_keys=True, separators=separators, default=str)


# Pipfile.lock


def _pipfile_hash(document: Mapping[str, object]) -> str:
    """Source: `plette.Pipfile.get_hash`."""
    default = [{"name": "pypi", "url": "https://pypi.org/simple", "verify_ssl": True}]
    known = ("source", "packages", "dev-packages", "requires", "scripts", "pipfile", "pipenv")
    data: dict[str, object] = {
        "_meta": {
            "sources": document.get("source", default),
            "requires": document.get("requires", {}),
        },
        "default": document.get("packages", {}),
        "develop": document.get("dev-packages", {}),
    }
    for category, values in document.items():
        if category not in (*known, "default", "develop"):
            data[category] = values
    return hashlib.sha256(_json(data, (",", ":")).encode()).hexdigest()


# Pinned requirements


def _lines(path: Path, label: str) -> Iterator[Line]:
    if path.name == "pyproject.toml":
        for said in expand(read_project(path, label), {""}):
            yield Line(label, said.line, said.name, said.requirement)
    elif path.suffix in (".in", ".txt"):
        yield from read_wanted(path, label).lines


def _unmet(line: Line, pins: Mapping[str, str]) -> str | None:
    version = pins.get(line.name)
    if line.requirement.url is not None:
        return None
    if version is not None:
        try:
            if line.requirement.specifier.contains(parse_version(version), prereleases=True):
                return None
        except InvalidVersion:
            return None
    return f"{line} asks for {line.requirement}"


def _has(name: str, pins: Mapping[str, str]) -> str:
    return f"has {name} {pins[name]}" if name in pins else f"has no {name}"
