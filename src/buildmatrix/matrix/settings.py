"""Settings of a target: combined from layers, with placeholders filled in."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from buildmatrix.base import child
from buildmatrix.matrix.document import Problems, did_you_mean, quoted
from buildmatrix.matrix.keys import SpecFile
from buildmatrix.matrix.keys_settings import OverrideTable, TargetSettings
from buildmatrix.matrix.shapes import SourceText
from buildmatrix.matrix.tables import Key, Table

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
    model: type[ModelT],
    table: Table,
    convert: Callable[[object], object] = plain,
    **others: object,
) -> ModelT:
    """A `model` (a dataclass) with the values of the keys that its fields are named after.

    `position` is that of the table. `others` are fields that mean something else. What the table
    does not say is the model's default.
    """
    known = dict(others)
    for item in dataclasses.fields(model):  # type: ignore[arg-type]  # each is a dataclass
        if item.name not in known:
            said: object = getattr(table, item.name, None)
            said = table.at if item.name == "position" else convert(said)
            if said is not None or item.default is item.default_factory is dataclasses.MISSING:
                known[item.name] = said
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


@dataclass(frozen=True, slots=True)
class Filler:
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
