"""Settings of a target: combined from layers, with placeholders filled in."""

from __future__ import annotations

import os.path
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base import child
from buildmatrix.base.data import field_names, required_names
from buildmatrix.matrix.document import Problems, closest, did_you_mean, quoted, read
from buildmatrix.matrix.keys import CatalogueTable, SpecFile
from buildmatrix.matrix.keys_settings import OverrideTable, TargetSettings
from buildmatrix.matrix.model import Position, Spec, Target
from buildmatrix.matrix.shapes import Key, SourceText, SpecNode, Table, row

ModelT = TypeVar("ModelT")

# Layers: defaults < backend < variant < overrides


SETTINGS: Mapping[str, Key] = {key.name: key for key in TargetSettings.keys}

#: Settings that `inherit` may name: the others cannot be appended to.
APPENDABLE = tuple(name for name, key in SETTINGS.items() if key.shape.extensible)


def all_settings(file: SpecFile) -> tuple[TargetSettings, ...]:
    """Return every table of a file that has settings."""
    return (file.defaults, *file.backend.values(), *file.variant.values(), *file.override)


def specialize(general: TargetSettings, special: TargetSettings) -> TargetSettings:
    """Return `general` with the settings of a backend or a variant on top, merged key by key."""
    return _combine(
        general, special, {name: key.merge != "replace" for name, key in SETTINGS.items()}
    )


def override(settings: TargetSettings, over: OverrideTable) -> TargetSettings:
    """Return `settings` with an override on top; it replaces unless `inherit` says `append`."""
    return _combine(
        settings, over, {name: way.value == "append" for name, way in over.inherit.items()}
    )


def check_override(over: OverrideTable, problems: Problems) -> None:
    """Check that an override sets something, and that `inherit` names only its lists and tables."""
    if all(getattr(over, key.field) is None for key in SETTINGS.values()):
        message = "this override sets nothing"
        problems.doubt(over.at, message, "write a setting, such as `archs`")
    for name, way in over.inherit.items():
        if name not in APPENDABLE:
            reason = "is a single value" if name in SETTINGS else "is not a setting"
            problems.add(
                way.at,
                f"`inherit` names `{name}`, which {reason}: nothing can be appended to it",
                did_you_mean(name, APPENDABLE, "lists and tables"),
            )
        elif getattr(over, SETTINGS[name].field) is None:
            problems.doubt(
                way.at,
                f"`inherit` names `{name}`, which this override does not set",
                f"add `{name}` to the override, or remove it from `inherit`",
            )


def _combine(
    low: TargetSettings, high: TargetSettings, append: Mapping[str, bool]
) -> TargetSettings:
    changes: dict[str, object] = {}
    for name, key in SETTINGS.items():
        old: object = getattr(low, key.field)
        new: object = getattr(high, key.field)
        if new is None:
            continue
        if append.get(name) and isinstance(old, tuple) and isinstance(new, tuple):
            new = old + new
        elif append.get(name) and isinstance(old, dict) and isinstance(new, dict):
            new = old | new
        changes[key.field] = new
    return type(low)(**vars(low) | changes)


def sound(texts: tuple[SourceText, ...] | None) -> tuple[SourceText, ...]:
    """Return the texts without stand-ins for wrong ones."""
    return tuple(text for text in texts or () if text.sound)


def value(text: SourceText | None) -> str:
    """Return the string of a text; empty if it is missing or wrong."""
    return text.value if text is not None and text.sound else ""


def _converted(text: SourceText) -> object:
    return text.kind.convert(text.value)


def plain(said: object, convert: Callable[[SourceText], object] = _converted) -> Any:
    """A value of a table without positions and without the stand-ins of wrong texts."""
    match said:
        case SourceText():
            return convert(said) if said.sound else None
        case tuple():
            items = (plain(item, convert) for item in said)
            return tuple(item for item in items if item is not None)
        case dict():
            entries = ((name, plain(item, convert)) for name, item in said.items())
            return {name: item for name, item in entries if item is not None}
    return said


def build(
    model: type[ModelT], table: Table, convert: Callable[[object], object] = plain, **others: object
) -> ModelT:
    """A `model` with the values of the keys that its fields are named after.

    `position` is that of the table. `others` are fields that mean something else. What the table
    does not say is the model's default.
    """
    known = dict(others)
    required = required_names(model)
    for name in field_names(model):
        if name not in known:
            said: object = getattr(table, name, None)
            said = table.at if name == "position" else convert(said)
            if said is not None or name in required:
                known[name] = said
    return model(**known)


# Placeholders: `{project}`, `{id}`, `{runtime.full}` and others, filled in per target.
# `{{` and `}}` are single braces. `${NAME}` is left for the reader of the value.


#: Computed on demand: it costs a process.
GIT = "git.short"

_PART = re.compile(r"(?P<kept>\$\{[^{}]*\})|\{\{|\}\}|\{(?P<name>[^{}]*)\}|(?P<stray>[{}])")


class NoCommitError(Exception):
    """The specification's folder has no git commit; the message says why."""


def short_commit(folder: Path) -> str:
    """Return the commit that is checked out in `folder`, 12 digits.

    Raises:
        NoCommitError: git is missing, or there is no commit.
    """
    try:
        answer = child.ask_git(folder, "rev-parse", "--short=12", "--verify", "HEAD", seconds=10)
    except FileNotFoundError:
        raise NoCommitError("git is not installed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCommitError(f"git did not answer ({type(error).__name__})") from None
    if answer.returncode != 0:
        raise NoCommitError(child.git_complaint(answer) or "git failed")
    return answer.stdout.decode().strip()


class Filler(Struct, frozen=True):
    """Fills in the texts of one target, and checks the results."""

    target: str
    #: None for a wrong value, which was reported already.
    values: Mapping[str, str | None]
    #: Called for `{git.short}`; raises `NoCommitError`.
    commit: Callable[[], str]
    problems: Problems

    def fill(self, text: SourceText) -> str:
        """Return `text` with all placeholders filled in; note unknown ones and invalid results.

        In these cases, and for texts that were wrong before, the result is empty.
        """
        if not text.sound or ("{" not in text.value and "}" not in text.value):
            return text.value
        failed = False

        def part(match: re.Match[str]) -> str:
            nonlocal failed
            if (name := match["name"]) is not None:
                value = self._value(name, text)
                failed |= value is None
                return value or ""
            if match["stray"]:
                self.problems.add(
                    text.at, f"{quoted(text.value)} has a single brace", "write `{{` or `}}`"
                )
                failed = True
            return match["kept"] or match[0][:1]

        filled = _PART.sub(part, text.value)
        if not failed and (complaint := text.kind.complaint(filled)):
            message = f"{quoted(text.value)} becomes {quoted(filled)} for {self.target}: that"
            self.problems.add(text.at, f"{message} {complaint}", mistake=text.value)
            failed = True
        return "" if failed else filled

    def _value(self, name: str, text: SourceText) -> str | None:
        if name in self.values:
            return self.values[name]
        if name == GIT:
            try:
                return self.commit()
            except NoCommitError as error:
                self.problems.add(
                    text.at,
                    f"`{{{GIT}}}` needs a git commit: {error}",
                    "commit first, or use `{version}`",
                )
                return None
        names = [*self.values, GIT]
        if name.startswith("runtime."):
            backend, runtime = self.values["backend"], self.values["runtime"]
            message = f"runtime `{runtime}` of `{backend}` has no value {quoted(name[8:])}"
            names = [value for value in names if value.startswith("runtime.")]
            hint = did_you_mean(name, names, "values of this runtime")
        else:
            message = f"unknown placeholder {quoted('{' + name + '}')}"
            hint = did_you_mean(name, names, "placeholders")
        self.problems.add(text.at, message, hint)
        return None


#: Folder of the interpreter in the built-in templates (templates/base.Dockerfile.j2).
PROGRAMS = "/opt/venv/bin"


def check_values(settings: TargetSettings, problems: Problems) -> None:
    """Note values that would break the image or have no effect, and that no later step reports."""
    for name, text in (settings.env or {}).items():
        if not text.sound:
            continue
        if re.search(rf"\$(?:{name}\b|{{{name}}})", text.value):
            problems.add(
                text.at,
                f"`{name}` refers to itself, but `env` expands nothing",
                "write the whole value",
            )
        elif name == "PATH" and PROGRAMS not in text.value.split(":"):
            problems.add(
                text.at,
                f"this PATH leaves out `{PROGRAMS}`, where the image's Python is",
                f"write `{PROGRAMS}:/usr/local/bin:/usr/bin:/bin` and what you add",
            )
        elif name == "PYTHONHOME":
            problems.add(
                text.at,
                "PYTHONHOME would keep the image's Python from finding its own modules",
                "remove it; PYTHONPATH adds folders",
            )
    written_as: dict[str, str] = {}
    for name, text in (settings.replace or {}).items():
        key = canonicalize_name(name)
        if text.sound and canonicalize_name(text.value) == key:
            problems.add(text.at, f"`{name}` is replaced by itself", "remove this entry")
        if key in written_as:
            message = f"`{written_as[key]}` and `{name}` are one distribution, replaced twice"
            problems.add(text.at, message, "keep one of the two")
        written_as[key] = name


def check_backend_name(name: str, at: Position, file: SpecFile, problems: Problems) -> None:
    """Note a backend that the file does not describe."""
    if name not in file.backend:
        hint = did_you_mean(name, file.backend, "backends")
        problems.doubt(at, f"there is no backend {quoted(name)} here", hint)


def check_clashes(
    targets: Sequence[Target], spec: Path, file: SpecFile, problems: Problems
) -> None:
    """Note locks over their own inputs, and locks and tags that several targets would share."""
    lock_key = next((layer.lock.at for layer in all_settings(file) if layer.lock), file.at)
    first: dict[str, str] = {}
    owners: dict[str, list[str]] = {}
    for target in targets:
        inputs = (*target.requirements, target.pyproject, target.template, spec.name)
        if target.lock in inputs or target.lock.rpartition("/")[2] == "pixi.toml":
            problems.add(
                lock_key,
                f"the lock of {target.id} would be written over `{target.lock}`",
                "write a file of its own, such as `locks/pylock.{id}.toml`",
                mistake="overwritten lock",
            )
        owner = first.setdefault(target.lock, target.id)
        if owner != target.id:
            message = f"{owner} and {target.id} would share the lock `{target.lock}`"
            hint = "put `{id}` into the path"
            problems.doubt(lock_key, message, hint, mistake="shared lock")
        for tag in target.tags:
            owners.setdefault(f"{target.image}:{tag}", []).append(target.id)
    for reference, ids in owners.items():
        if len(ids) > 1:
            more = f" and {len(ids) - 2} more" if len(ids) > 2 else ""
            at = file.tags.templates[0].at if file.tags.templates else file.tags.at
            tag = reference.rpartition(":")[2]
            alias = file.tags.alias.get(tag)
            problems.doubt(
                alias.at if alias else at,
                f"{ids[0]} and {ids[1]}{more} would all be tagged `{reference}`",
                "put `{id}` into the template",
            )


# Paths. `copy` needs its paths only when an image is built, not to plan, lock or scan. A folder of
# `copy` may be the result of an earlier step (`dist/`), so a missing one does not make a
# specification invalid.


def tidy(path: str) -> str:
    """Return a path without `./`, double slashes and a slash at the end."""
    return str(PurePosixPath(path)) if path else path


def check_exists(root: Path, path: str, at: Position, problems: Problems) -> bool:
    """Note a problem unless `path` is a file below `root`, or empty; return True if it exists."""
    if not path or os.path.isfile(root / path):  # noqa: PTH113 (never raises, unlike Path's)
        return bool(path)
    message = f"there is no file `{path}` below the specification's folder"
    problems.add(at, message, _find_similar(root, path))
    return False


def _find_similar(root: Path, path: str) -> str | None:
    """Return a hint with the file beside `path` that was probably meant."""
    try:
        siblings = [entry.name for entry in (root / path).parent.iterdir()][:1000]
    except OSError:
        return None
    near = closest(PurePosixPath(path).name, siblings)
    return f"did you mean `{PurePosixPath(path).with_name(near)}`?" if near else None


def read_data_files(path: Path) -> tuple[Path, ...]:
    """Return the data files of the specification `path`, for commands that need nothing else of it.

    Empty without a specification. Problems elsewhere in it do not count.

    Raises:
        SpecError: the specification is not TOML, or its data files are wrong.
    """
    if not path.exists():
        return ()
    problems = Problems(str(path))
    document = read(path, problems)
    names: tuple[str, ...] = ()
    if "catalogue" in document.values:
        entry = SpecNode(document, problems, ("catalogue",))
        table = row(CatalogueTable).read(document.values["catalogue"], entry)
        names = data_files(table, path.parent, problems)
    problems.stop()
    return tuple(path.parent / name for name in names)


def data_files(table: CatalogueTable, root: Path, problems: Problems) -> tuple[str, ...]:
    """Return the existing files below `root`, each once and relative to it; note the others."""
    names: list[str] = []
    for text in sound(table.files):
        name = tidy(text.value)
        if name in names:
            problems.add(text.at, f"`{name}` is listed twice", "keep one of the two")
        elif check_exists(root, name, text.at, problems):
            if (root / name).resolve().is_relative_to(root.resolve()):
                names.append(name)
            else:
                message = f"`{name}` is a link that leads out of the specification's folder"
                problems.add(text.at, message, "put the file itself there")
    return tuple(names)


def copied_paths(file: SpecFile) -> tuple[tuple[str, Position], ...]:
    """Return all paths of `copy` as written, with positions."""
    return tuple(
        (source.value, source.at)
        for settings in all_settings(file)
        for source, _ in settings.copy or ()
        if source.sound
    )


def check_copied(spec: Spec, targets: Sequence[Target]) -> None:
    """Raise `SpecError` with the place of every path of `copy` that `targets` cannot copy."""
    problems = Problems(str(spec.path))
    root = spec.root.resolve()
    for path in dict.fromkeys(source for target in targets for source, _ in target.copy):
        place = (spec.root / path).resolve()
        # With placeholders, the position of the first entry that may expand to it.
        exact = (at for written, at in spec.copied if str(PurePosixPath(written)) == path)
        expanded = (at for written, at in spec.copied if "{" in written)
        at = next(chain(exact, expanded), None)
        if not place.exists():
            problems.add(
                at,
                f"there is no `{path}` below the specification's folder, but `copy` names it",
                _find_similar(spec.root, path) or "make it first, or remove it from `copy`",
            )
        elif not place.is_relative_to(root):
            problems.add(
                at,
                f"`copy` names `{path}`, a link that leads out of the specification's folder",
                "put the files themselves there",
            )
    problems.stop()
