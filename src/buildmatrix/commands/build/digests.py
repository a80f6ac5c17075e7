"""Digests of what a specification copies into images: the journal detects changes by them."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path

from buildmatrix.errors import Problem, SpecError
from buildmatrix.oci.layers import WHITEOUT
from buildmatrix.render.quoting import FOLDER, Ignored, rules
from buildmatrix.state.journal import file_sha256


class Digests:
    """Digests of files and folders, each read once however many targets use it.

    What the generated `.dockerignore` files keep out of the context does not count; `output` is
    the folder of generated files.
    """

    def __init__(self, root: Path, output: str = FOLDER) -> None:
        self._root = root
        self._ignored = Ignored(rules(root, output))
        self._digests: dict[str, str] = {}

    def of(self, path: str) -> str:
        """Digest of a file, or of all files below a folder with names, modes and contents.

        Raises `SpecError` when it is not there: the image could not be built either.
        """
        if path not in self._digests:
            try:
                self._digests[path] = _tree_sha256(self._root, path, self._ignored)
            except OSError as error:
                raise SpecError(
                    [
                        Problem(
                            f"{error.strerror or error}: it is to be copied into the image",
                            str(Path(error.filename or path)),
                            hint="see `copy` in the specification",
                        )
                    ]
                ) from error
        return self._digests[path]


def _tree_sha256(root: Path, path: str, ignored: Ignored) -> str:
    _check_name(path, root / path)
    if (root / path).is_file():
        return file_sha256(root / path)
    digest = hashlib.sha256()
    for name, kind, content in _entries(root, path, ignored):
        digest.update(f"{len(os.fsencode(name))} {kind} {len(content)} ".encode())
        digest.update(os.fsencode(name) + os.fsencode(content))
    return digest.hexdigest()


def _entries(root: Path, copied: str, ignored: Ignored) -> Iterator[tuple[str, str, str]]:
    """Every entry that the folder `copied` has in the context, in a fixed order.

    Relative path, kind with mode, content.
    """
    folder = root / copied
    for directory, folders, files in os.walk(folder, onerror=_raise):
        place = posixpath.join(copied, Path(directory).relative_to(folder).as_posix())
        left_out = {
            name
            for name in (*folders, *files)
            if ignored(posixpath.normpath(posixpath.join(place, name)))
        }
        present = sorted({*folders, *files} - left_out)
        folders[:] = sorted(set(folders) - (set() if ignored.has_exceptions else left_out))
        for name in present:
            path = Path(directory, name)
            _check_name(copied, path)
            relative = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if path.is_symlink():
                yield relative, "link", str(path.readlink())
            elif path.is_dir():
                yield relative, f"folder {mode:o}", ""
            elif path.is_file():
                yield relative, f"file {mode:o}", file_sha256(path)
            else:
                yield relative, f"special {mode:o}", ""


def _check_name(copied: str, path: Path) -> None:
    """Raise `SpecError` for a name that engines take for the removal of other files."""
    if path.name.startswith(WHITEOUT):
        message = (
            f"`copy` brings {path}, and in an image a name that begins with `{WHITEOUT}` removes "
            "other files"
        )
        hint = f"rename it, or leave it out of {copied} by `.dockerignore`"
        raise SpecError([Problem(message, str(path), hint=hint)])


def _raise(error: OSError) -> None:
    raise error
