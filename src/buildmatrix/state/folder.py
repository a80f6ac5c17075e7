"""The state folder: files of one machine, which may be deleted at any time.

`<folder>/lock` is locked by the current run, `<folder>/images` contains images built by the engine
`oci`, and `<folder>/<target>/` a target's record, log, inventory and temporary files of the engine.
Decisive files are sealed: see `buildmatrix.state.seal`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from buildmatrix import git
from buildmatrix.engines.process import writing
from buildmatrix.errors import UsageError
from buildmatrix.files import keep_out_of_git
from buildmatrix.inventory.model import SCHEMA
from buildmatrix.progress import Progress
from buildmatrix.spec.model import STATE
from buildmatrix.state.seal import seal
from buildmatrix.store.cache import DAY, Cache, Store, source_digest

#: The state folder, relative to the specification.
FOLDER = STATE
#: Cached bytes per target: 2,600 binaries have 400 kB of layers.
_MAX_CACHED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class TargetFiles:
    """Paths of one target's files."""

    folder: Path

    @property
    def record(self) -> Path:
        """Journal record of the target."""
        return self.folder / "record.json"

    @property
    def log(self) -> Path:
        """Complete output of the last build."""
        return self.folder / "build.log"

    @property
    def inventory(self) -> Path:
        """Inventory of the image in the record."""
        return self.folder / "inventory.json"

    @property
    def scan_output(self) -> Path:
        """Output folder of the scanner."""
        return self.folder / "scan"

    def layers(self, note: Callable[[str], None]) -> Store:
        """Cache of the layers of that image, by their content.

        Survives changes of the code, like the inventory: the image may be gone by then.
        """
        return self._cache(note).store("layers", SCHEMA, limit=_MAX_CACHED_BYTES, age=365 * DAY)

    def derived(self, note: Callable[[str], None]) -> Store:
        """Cache of results derived from the inventory, for the current code only."""
        return self._cache(note).store(
            "made", source_digest(), limit=_MAX_CACHED_BYTES, age=30 * DAY
        )

    def _cache(self, note: Callable[[str], None]) -> Cache:
        return Cache(self.folder, note, key=seal(b"cache", os.fsencode(self.folder.name)))


def images_folder(specification: Path) -> Path:
    """Return the OCI layout with the images that the engine `oci` built from a specification."""
    return specification.absolute().parent / FOLDER / "images"


@dataclass(frozen=True, slots=True)
class State:
    """The state folder of one specification."""

    folder: Path

    @classmethod
    def beside(cls, root: Path) -> State:
        """Return the state of the specification in `root`. Raises `UsageError` if Git tracks it."""
        folder = root / FOLDER
        if (tracked := git.tracked_file(folder)) is not None:
            raise UsageError(
                f"{folder} is tracked by Git ({tracked}), but it is only valid on the machine that "
                f"wrote it; run `git rm -r --cached {FOLDER}`, and build again"
            )
        return cls(folder)

    def target_files(self, target: str) -> TargetFiles:
        """Return the files of the target with this ID."""
        return TargetFiles(self.folder / target)

    @contextmanager
    def lock(self, progress: Progress) -> Iterator[None]:
        """Lock the folder; wait, and report it, while another run holds the lock.

        The kernel releases the lock when its holder ends, for whatever reason.
        """
        with writing(self.folder):
            keep_out_of_git(self.folder.parent)
            self.folder.mkdir(exist_ok=True)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                progress.note(
                    f"another buildmatrix (process {holder or 'unknown'}) is using {self.folder}; "
                    "waiting until it is done"
                )
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            with writing(self.folder):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            yield
        finally:
            os.close(descriptor)
