"""A folder that looks like the user's, with other content in some of its files.

Folders on the way to a changed file are made anew, everything else in them is linked. So includes,
constraints and settings are found where they are, and nothing of the user's is written to.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from buildmatrix.errors import UndecidedError
from buildmatrix.scratch import scratch
from buildmatrix.trees.base import reason

#: Links that are made at most.
_MOST = 50_000


@contextmanager
def overlay(
    root: Path, changed: Mapping[Path, bytes], beside: Collection[Path] = ()
) -> Iterator[Path]:
    """The folder `root` as it would be, in a place that is removed afterwards.

    Args:
        root: the folder that sources start from.
        changed: file -> its content there.
        beside: files that include others, or that must be no link. What they include may be changed
            too.

    Raises `UndecidedError` where such a folder cannot be made.
    """
    start = root.resolve()
    files = {_lexical(path): data for path, data in changed.items()}
    real = {_lexical(path) for path in beside} - {*files}
    top = Path(os.path.commonpath([start, *(path.parent for path in (*files, *real))]))
    with scratch("try") as place:
        # As deep as the real one, so that nothing leads out of it by mistake.
        base = place / "tree"
        base.mkdir()
        folders = {start, *(path.parent for path in (*files, *real))}
        folders |= {up for folder in folders for up in folder.parents if up.is_relative_to(top)} | {
            top
        }
        try:
            _mirror(base, top, folders, {*files, *real})
            for path, data in files.items():
                (base / path.relative_to(top)).write_bytes(data)
            for path in real:
                if path.is_file():
                    (base / path.relative_to(top)).write_bytes(path.read_bytes())
        except OSError as error:
            message = f"{top} cannot be copied to try something: {reason(error)}."
            raise UndecidedError(message) from error
        yield base / start.relative_to(top)


def _lexical(path: Path) -> Path:
    """Return the path of a file without following links."""
    return path.parent.resolve() / path.name


def _mirror(base: Path, top: Path, folders: Collection[Path], own: Collection[Path]) -> None:
    made = 0
    for folder in sorted(folders):
        place = base / folder.relative_to(top)
        place.mkdir(exist_ok=True)
        if not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            for entry in entries:
                path = folder / entry.name
                if path in folders or path in own:
                    continue
                made += 1
                if made > _MOST:
                    raise UndecidedError(
                        f"{top} holds more than {_MOST} files beside those that would change, so "
                        "nothing was tried."
                    )
                (place / entry.name).symlink_to(path)
