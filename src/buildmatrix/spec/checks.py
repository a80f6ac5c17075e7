"""What is well written and still wrong: values no image can use, and targets that clash."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.spec.document import Problems
from buildmatrix.spec.grammar import quoted
from buildmatrix.spec.hints import did_you_mean
from buildmatrix.spec.keys import SpecFile
from buildmatrix.spec.keys_settings import TargetSettings
from buildmatrix.spec.layers import all_settings
from buildmatrix.spec.model import Position, Target
from buildmatrix.spec.shapes import SourceText

#: Where the built-in templates put the interpreter (templates/base.Dockerfile.j2).
PROGRAMS = "/opt/venv/bin"


def check_values(settings: TargetSettings, problems: Problems) -> None:
    """Note what would break the image, or mean nothing, without any step saying so."""
    _check_environment(settings.env or {}, problems)
    _check_replacements(settings.replace or {}, problems)


def _check_environment(env: Mapping[str, SourceText], problems: Problems) -> None:
    for name, text in env.items():
        if not text.sound:
            continue
        if re.search(rf"\$(?:{name}\b|{{{name}}})", text.value):
            problems.add(
                text.at,
                f"`{name}` refers to itself, and nothing in `env` is expanded",
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


def _check_replacements(replace: Mapping[str, SourceText], problems: Problems) -> None:
    written_as: dict[str, str] = {}
    for name, text in replace.items():
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
        problems.add(at, f"there is no backend {quoted(name)} here", hint, doubtful=True)


def check_clashes(
    targets: Sequence[Target], spec: Path, file: SpecFile, problems: Problems
) -> None:
    """Note locks over their own inputs, and locks and tags that several targets would share."""
    _check_overwritten(targets, spec, file, problems)
    _check_locks(targets, file, problems)
    _check_tags(targets, file, problems)


def _lock_key(file: SpecFile) -> Position:
    """Where the file says what locks are called."""
    return next((layer.lock.at for layer in all_settings(file) if layer.lock), file.at)


def _check_overwritten(
    targets: Sequence[Target], spec: Path, file: SpecFile, problems: Problems
) -> None:
    """A lock is written: not over what it is made from."""
    for target in targets:
        inputs = (*target.requirements, target.pyproject, target.template, spec.name)
        if target.lock in inputs:
            message = f"the lock of {target.id} would be written over `{target.lock}`"
            hint = "write a file of its own, such as `locks/pylock.{id}.toml`"
            problems.add(_lock_key(file), message, hint)
            return


def _check_locks(targets: Sequence[Target], file: SpecFile, problems: Problems) -> None:
    first: dict[str, str] = {}
    for target in targets:
        owner = first.setdefault(target.lock, target.id)
        if owner != target.id:
            message = f"{owner} and {target.id} would share the lock `{target.lock}`"
            problems.add(_lock_key(file), message, "put `{id}` into the path", doubtful=True)
            return


def _check_tags(targets: Sequence[Target], file: SpecFile, problems: Problems) -> None:
    owners: dict[str, list[str]] = {}
    for target in targets:
        for tag in target.tags:
            owners.setdefault(f"{target.image}:{tag}", []).append(target.id)
    for reference, ids in owners.items():
        if len(ids) > 1:
            more = f" and {len(ids) - 2} more" if len(ids) > 2 else ""
            at = file.tags.templates[0].at if file.tags.templates else file.tags.at
            tag = reference.rpartition(":")[2]
            alias = file.tags.alias.get(tag)
            problems.add(
                alias.at if alias else at,
                f"{ids[0]} and {ids[1]}{more} would all be tagged `{reference}`",
                "put `{id}` into the template",
                doubtful=True,
            )
