"""Paths that a specification names: whether they lie below its folder, and are there.

What `copy` names must be there when an image is to be built; to plan, lock or scan, it need not. A
folder of `copy` may be what an earlier step makes (`dist/`), so a specification without it is none
the worse.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from buildmatrix.spec.document import Problems, read
from buildmatrix.spec.hints import closest
from buildmatrix.spec.keys import CatalogueTable, SpecFile
from buildmatrix.spec.layers import all_settings, sound
from buildmatrix.spec.model import Position, Spec, Target
from buildmatrix.spec.shapes import SpecNode
from buildmatrix.spec.tables import row


def tidy(path: str) -> str:
    """A path without `./`, double slashes and a slash at the end."""
    return str(PurePosixPath(path)) if path else path


def check_exists(root: Path, path: str, at: Position, problems: Problems) -> bool:
    """Whether `path` is a file below `root`; if not, that is a problem; not for an empty path."""
    if not path or os.path.isfile(root / path):  # noqa: PTH113 (never raises, unlike Path's)
        return bool(path)
    try:
        siblings = [entry.name for entry in (root / path).parent.iterdir()][:1000]
    except OSError:
        siblings = []
    near = closest(PurePosixPath(path).name, siblings)
    hint = f"did you mean `{PurePosixPath(path).with_name(near)}`?" if near else None
    problems.add(at, f"there is no file `{path}` below the specification's folder", hint)
    return False


def read_data_files(path: Path) -> tuple[Path, ...]:
    """The data files of the specification `path`, for commands that need nothing else of it.

    Nothing where there is no specification. A mistake elsewhere in it does not count.

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
    """The files that exist below `root`, each once and relative to it; the others are problems."""
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


def copied(file: SpecFile) -> tuple[tuple[str, Position], ...]:
    """All paths of `copy` as they are written, and where."""
    return tuple(
        (source.value, source.at)
        for settings in all_settings(file)
        for source, _ in settings.copy or ()
        if source.sound
    )


def check_copied(spec: Spec, targets: Sequence[Target]) -> None:
    """Raises `SpecError` with the place of every path of `copy` that `targets` cannot copy."""
    problems = Problems(str(spec.path))
    root = spec.root.resolve()
    for path in dict.fromkeys(source for target in targets for source, _ in target.copy):
        place = (spec.root / path).resolve()
        if not place.exists():
            problems.add(
                _at(spec, path),
                f"there is no `{path}` below the specification's folder, and it is to be copied",
                _advice(spec, path),
            )
        elif not place.is_relative_to(root):
            problems.add(
                _at(spec, path),
                f"`{path}` is to be copied, and is a link that leads out of the specification's "
                "folder",
                "put the files themselves there",
            )
    problems.stop()


def _advice(spec: Spec, path: str) -> str:
    folder = (spec.root / path).parent
    near = closest(path.rpartition("/")[2], [entry.name for entry in folder.glob("*")][:1000])
    if near is None:
        return "make it first, or remove it from `copy`"
    return f"did you mean `{PurePosixPath(path).with_name(near)}`?"


def _at(spec: Spec, path: str) -> Position | None:
    """Its position; with placeholders, that of the first entry that may expand to it."""
    for written, at in spec.copied:
        if str(PurePosixPath(written)) == path:
            return at
    return next((at for written, at in spec.copied if "{" in written), None)
