"""Checks of well-formed files: impossible values, clashing targets, missing paths."""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from buildmatrix.matrix.document import Problems, closest, did_you_mean, quoted, read
from buildmatrix.matrix.keys import CatalogueTable, SpecFile
from buildmatrix.matrix.keys_settings import TargetSettings
from buildmatrix.matrix.model import Position, Spec, Target
from buildmatrix.matrix.settings import all_settings, sound
from buildmatrix.matrix.shapes import SpecNode
from buildmatrix.matrix.tables import row

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
        if target.lock in (*target.requirements, target.pyproject, target.template, spec.name):
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
