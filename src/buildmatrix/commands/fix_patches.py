"""Changes that `audit --fix` tries, as text of the changed files.

Only `write` touches the user's files.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.parsing import parse_requirement
from buildmatrix.base.toml import written
from buildmatrix.commands.audit import AuditInputs
from buildmatrix.judge.model import Finding, Fix, SpecChange, Trial
from buildmatrix.locks.edits import (
    CannotAmend,
    CannotRewrite,
    amend_toml,
    rename_in_environment,
    rename_in_line,
    rename_in_toml,
    unified,
)
from buildmatrix.locks.lines import format_extras
from buildmatrix.locks.projects import read_project
from buildmatrix.locks.requirement_files import is_environment, read_requirements
from buildmatrix.matrix.model import Target
from buildmatrix.reports.run import Report
from buildmatrix.sources.model import Declared, label_of
from buildmatrix.sources.parse import parse_declared

_BOM = "\ufeff"


class CannotWrite(Exception):
    """No file can say this change; the message says why, as the end of a sentence."""


class Text(Struct, frozen=True):
    """A file's current and changed text."""

    #: Where it is written, and where it is read: a link may lie between the two.
    path: Path
    at: Path
    #: Path relative to the folder of the sources.
    label: str
    before: str
    after: str

    @property
    def patch(self) -> str:
        """The difference, for `git apply`."""
        return unified(self.label, self.before, self.after)


class Draft(Struct):
    """Inputs with changes in them that are not written."""

    inputs: AuditInputs
    texts: dict[Path, Text] = field(default_factory=dict)
    #: Files that were read on the way, and include others.
    beside: set[Path] = field(default_factory=set)
    #: SOURCEs, some of them changed (`pypi:xgboost-cpu==3.4.1`).
    sources: list[str] = field(default_factory=list)
    #: Ranges of the requirements that were changed.
    ranges: set[str] = field(default_factory=set)
    #: Changes of targets that no file has, by identifier.
    hooks: list[tuple[frozenset[str], SpecChange]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with the current files."""
        self.sources = self.sources or list(self.inputs.sources)

    @property
    def patch(self) -> str:
        """The difference of all files."""
        changed = sorted(self.texts.values(), key=lambda text: text.label)
        return "".join(text.patch for text in changed)

    def edit(self, path: Path) -> Text:
        """The file as it is in this draft. Raises `CannotWrite`."""
        place = path.resolve()
        if place not in self.texts:
            try:
                text = place.read_bytes().decode()
            except (OSError, UnicodeDecodeError) as error:
                raise CannotWrite(f"{path} cannot be read as text") from error
            label = label_of(str(place), self.inputs.root.resolve())
            return Text(place, path, label, text, text)
        return self.texts[place]

    def put(self, text: Text, after: str) -> None:
        """Give a file other content."""
        if after != text.before:
            self.texts[text.path] = replace(text, after=after)

    def hooked(self, target: Target) -> Target:
        """A target with the changes that no file says."""
        for ids, change in self.hooks:
            if any(id == target.id or id.startswith(f"{target.id}:") for id in ids):
                target = apply_change(target, change)
        return target


def apply_change(target: Target, change: SpecChange) -> Target:
    """The target as its specification would make it with `change`."""
    match change.key:
        case "replace":
            return replace(target, replace={**target.replace, change.name: change.value})
        case "drop":
            return replace(target, drop=(*target.drop, change.name))
        case "torch":
            return replace(target, torch=change.value)
        case _:
            return replace(target, no_binary=(*target.no_binary, change.name))


def entry(change: SpecChange) -> Mapping[str, object]:
    """The change as keys of `[backend.NAME]`."""
    match change.key:
        case "replace":
            return {"replace": {change.name: change.value}}
        case "torch":
            return {"torch": change.value}
        case _:
            return {change.key: [change.name]}


def snippet(change: SpecChange, backend: str) -> str:
    """The change as lines of a specification."""
    lines = [f"{key} = {written(value)}" for key, value in entry(change).items()]
    return "\n".join([f"[backend.{backend}]", *lines])


def write_to_spec(draft: Draft, change: SpecChange, backend: str) -> None:
    """Write a change into the specification. Raises `CannotWrite`."""
    spec = draft.inputs.spec
    assert spec is not None
    text = draft.edit(spec.path)
    draft.beside |= {spec.root / name for name in spec.catalogue}
    draft.beside |= {
        spec.root / name for target in spec.targets for name in target.requirements if name
    }
    _amend(draft, text, {"backend": {backend: entry(change)}})


def _amend(draft: Draft, text: Text, additions: Mapping[str, object]) -> None:
    try:
        draft.put(text, amend_toml(text.after, additions))
    except CannotAmend as error:
        raise CannotWrite(f"{text.label} is not changed: {error}") from error


def write_to_source(draft: Draft, number: int, change: SpecChange, only: str | None = None) -> None:
    """Write a change into what a SOURCE names; `only` is the range to ask for.

    Raises `CannotWrite` where it has no place for it.
    """
    root = draft.inputs.root
    parsed = parse_declared(draft.sources[number], root)
    path, label = root / parsed.name, label_of(parsed.name, root)
    obstacle = parsed.unwritable(path, label)
    if obstacle is not None:
        raise CannotWrite(obstacle)
    if parsed.written_as == "itself":
        requirement = parse_requirement(parsed.name)
        if change.key != "replace" or canonicalize_name(requirement.name) != change.name:
            raise CannotWrite(f"{parsed} is no file")
        extras = format_extras(requirement.extras)
        ranged = str(requirement.specifier) if only is None else only
        draft.ranges.add(str(requirement.specifier))
        draft.sources[number] = f"pypi:{change.value}{extras}{ranged}"
    elif parsed.written_as == "project" and change.key == "drop":
        # Left out as uv's settings say it.
        own = path.parent / "uv.toml"
        text = draft.edit(own if own.is_file() else path.parent / "pyproject.toml")
        entries = {"exclude-dependencies": [change.name]}
        _amend(draft, text, entries if own.is_file() else {"tool": {"uv": entries}})
    elif change.key != "replace":
        missing = "which index torch comes from" if change.key == "torch" else "what to leave out"
        raise CannotWrite(f"{label} has no line that says {missing}")
    elif parsed.written_as == "project":
        _write_to_project(draft, parsed, path, label, change, only)
    else:
        _write_to_requirements(draft, path, label, change, only)


def _write_to_requirements(
    draft: Draft, path: Path, label: str, change: SpecChange, only: str | None
) -> None:
    requirements = read_requirements(path, label)
    # Both start from the same folder.
    folder = posixpath.dirname(label) or "."
    places = {file: path.parent / os.path.relpath(file, folder) for file in requirements.files}
    draft.beside |= {*places.values()}
    lines = [line for line in requirements.lines if line.name == change.name and line.requirement]
    # A limit of the old name says nothing about its twin, which would come in any version.
    limits = [
        line for line in requirements.constraints if line.name == change.name and line.requirement
    ]
    for line in (*lines, *limits) if lines else ():
        if line.requirement.url is not None:
            raise CannotWrite(f"{line} gives {change.name} by its address")
        text = draft.edit(places[line.file])
        head, body = _without_bom(text.after)
        if _line(text.after, line.line) != _line(text.before, line.line):
            continue  # Another SOURCE includes the same file.
        try:
            renamed = rename_in_environment if is_environment(line.file) else rename_in_line
            anew = renamed(body, line.line, change.name, change.value, only)
        except CannotRewrite as error:
            raise CannotWrite(f"{line} is not changed: {error}") from error
        draft.ranges.add(str(line.requirement.specifier))
        draft.put(text, head + anew)
    if not lines:
        raise CannotWrite(f"no line of {label} names {change.name}")


def _write_to_project(
    draft: Draft, parsed: Declared, path: Path, label: str, change: SpecChange, only: str | None
) -> None:
    parts = {"", *parsed.extras, *(f":{group}" for group in parsed.groups)}
    requirements = [
        item
        for item in read_project(path, label).requirements
        if item.name == change.name and item.part in parts
    ]
    for requirement in {(item.line, item.text): item for item in requirements}.values():
        text = draft.edit(path)
        head, body = _without_bom(text.after)
        try:
            anew = rename_in_toml(
                body, requirement.line, requirement.text, change.name, change.value, only
            )
        except CannotRewrite as error:
            raise CannotWrite(f"{label}:{requirement.line} is not changed: {error}") from error
        draft.ranges.add(str(requirement.parsed.specifier))
        draft.put(text, head + anew)
    if not requirements:
        raise CannotWrite(f"no line of {label} names {change.name}")


def _line(text: str, number: int) -> str:
    return text.splitlines()[number - 1]


def _without_bom(text: str) -> tuple[str, str]:
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def write(texts: Iterable[Text]) -> tuple[str, ...]:
    """Write files; their labels. Raises `UndecidedError` when one is not what it was, or cannot be.

    Nothing is written unless all of them are as they were.
    """
    from buildmatrix.facts.files import write_changed

    files: Collection[Text] = sorted(texts, key=lambda item: item.label)
    for text in files:
        try:
            is_unchanged = text.path.read_bytes().decode() == text.before
        except (OSError, UnicodeDecodeError):
            is_unchanged = False
        if not is_unchanged:
            raise UndecidedError(
                f"{text.label} changed while its fix was tried, so nothing was written; run this "
                "again."
            )
    for text in files:
        mode = text.path.stat().st_mode & 0o7777
        write_changed(text.path, text.after.encode())
        try:
            text.path.chmod(mode)
        except OSError as error:
            raise UndecidedError(f"{text.label} cannot be restored: {error}") from error
    return tuple(file.label for file in files)


# Trials of changes, by finding


class Way(Struct, frozen=True):
    """One change in one place."""

    #: Number of the SOURCE; None for the specification.
    source: int | None
    #: The backend whose entry changes; empty for a SOURCE, which has one text for all.
    backend: str
    change: SpecChange


class Case(Struct):
    """One finding, and the ways to make it go away."""

    target: str
    finding: Finding
    ways: tuple[Way, ...]
    #: Number of the way whose turn it is.
    turn: int = 0

    @property
    def way(self) -> Way:
        """Way to try next."""
        return self.ways[self.turn]


class Tried(Struct, frozen=True):
    """Result of trying one change."""

    way: Way
    trial: Mapping[str, Trial]
    #: The findings that it is for: target and fingerprint.
    gone: frozenset[tuple[str, str]] = frozenset()
    #: The change in the files, where it works and a file can say it for all that it touches.
    draft: Draft | None = None
    only: str | None = None


def add_trials(
    report: Report, cases: Sequence[Case], tried_ways: Mapping[Way, Tried]
) -> tuple[Finding, ...]:
    """Return the findings of a report, with the results of their fixes."""
    fixes: dict[tuple[str, str], Fix] = {}
    for case in cases:
        fix = case.finding.fix
        assert fix is not None
        trials = [
            (way, way.trial[case.target])
            for way in map(tried_ways.get, case.ways)
            if way is not None and case.target in way.trial
        ]
        if not trials:
            continue
        # Where none works, one that could not be tried may still be right.
        order = {True: 0, None: 1, False: 2}
        tried, trial = min(trials, key=lambda pair: order[pair[1].works])
        if tried.way.change != fix.changes[0]:
            change, text = tried.way.change, snippet(tried.way.change, case.finding.backend)
            header, _, line = text.partition("\n")
            fix = replace(
                fix,
                kind="remove" if change.key == "drop" else fix.kind,
                text=f"write `{line}` under {header}",
                patch=f"{text}\n",
            )
        patch = tried.draft.patch if tried.draft is not None else fix.patch
        fixes[case.target, case.finding.fingerprint] = replace(
            fix, tried=trial, patch=patch or fix.patch
        )
    return tuple(
        replace(finding, fix=fixes.get((finding.target, finding.fingerprint), finding.fix))
        for finding in report.findings
    )


def change_phrase(change: SpecChange) -> str:
    """A change in words."""
    match change.key:
        case "replace":
            return f"{change.value} in place of {change.name}"
        case "drop":
            return f"without {change.name}"
        case "torch":
            return f"torch from uv's `{change.value}`"
        case _:
            return f"{change.name} from source"
