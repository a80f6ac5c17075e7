"""Build plan of a target, its key in the journal, and digests of the files in images."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.commands import build_checks
from buildmatrix.commands.build_work import Options
from buildmatrix.engines.dockerfile import bake_name, scan_name, staged_name
from buildmatrix.engines.model import BuildJob, Ingredients
from buildmatrix.engines.quoting import FOLDER, Ignored, rules
from buildmatrix.images.layers import WHITEOUT
from buildmatrix.locks.model import Lock
from buildmatrix.locks.status import project_packages
from buildmatrix.matrix.model import Spec, Target
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import TargetFiles, file_sha256


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


class BuildPlan:
    """Jobs and keys for targets whose files were generated."""

    def __init__(
        self, spec: Spec, options: Options, engine: str, files: Mapping[str, bytes]
    ) -> None:
        """`engine` is the engine's name, `files` what was generated: path → content."""
        self._spec = spec
        self._options = options
        self._engine = engine
        self._bake = f"{spec.output}/docker-bake.json"
        #: Folder → what was generated into it.
        self._paths: defaultdict[str, list[str]] = defaultdict(list)
        for path in files:
            self._paths[path.rpartition("/")[0]].append(path)
        self._entries = msgspec.json.decode(files[self._bake])["target"]
        self._digests = Digests(spec.root, spec.output)

    def job(self, target: Target, lock: Lock, files: TargetFiles, has_device: bool) -> BuildJob:
        """Return the engine's job; `has_device` is about the target's backend."""
        root = self._spec.root
        return BuildJob(
            id=target.id,
            bake_file=root / self._bake,
            image_target=bake_name(target.id),
            scan_target=scan_name(target.id),
            context=root,
            tags=target.references,
            staged=staged_name(target.id, root),
            log=files.log,
            scan_output=files.scan_output,
            load=self._options.preflight not in (None, "auto")
            or (self._options.smoke and bool(build_checks.runs_here(target, has_device))),
            ingredients=Ingredients(self._spec, target, lock),
        )

    def key(self, target: Target, lock: Lock, builder: str | None) -> str:
        """Digest of everything that the image is made of and made by.

        An image that a run does not load is where it was built, so each builder has its own.
        """
        names = bake_name(target.id), scan_name(target.id)
        project = project_packages(self._spec.root, target) if target.install_project else ()
        wheels = [package.wheels[0].sha256 for package in project]
        return state_folder.make_key(
            {
                "engine": self._engine,
                "builder": builder,
                "mirror": self._options.surroundings.mirror,
                "bake": [self._entries[name] for name in names],
                "generated": {
                    path: self._digests.of(path)
                    for folder in (target.id, "scan")
                    for path in self._paths[f"{self._spec.output}/{folder}"]
                },
                "context": [self._digests.of(path) for path, _ in target.copy],
                "lock": lock.digest,
                # Where the project itself is installed.
                **({"project": wheels} if target.install_project else {}),
            }
        )
