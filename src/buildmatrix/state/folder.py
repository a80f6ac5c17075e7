"""The state folder: what belongs to one machine and may be deleted at any time.

`<folder>/lock` is held by the run that works, `<folder>/images` holds what the engine `oci` built,
`<folder>/<target>/` holds a target's record, log,
inventory and what the engine needs in between. What decides something is sealed: see
`buildmatrix.state.seal`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from buildmatrix import git
from buildmatrix.engines.disk import writing
from buildmatrix.errors import UsageError
from buildmatrix.files import keep_out_of_git
from buildmatrix.inventory.model import SCHEMA
from buildmatrix.progress import Progress
from buildmatrix.spec.model import STATE
from buildmatrix.state.seal import seal
from buildmatrix.store.cache import DAY, Cache, Store, code

#: The state folder, relative to the specification.
FOLDER = STATE
#: Bytes of what is kept of one target: 2,600 binaries come to 400 kB of layers.
_LIMIT = 256 << 20


@dataclass(frozen=True, slots=True)
class TargetFiles:
    """Where the files of one target are."""

    folder: Path

    @property
    def record(self) -> Path:
        """What the journal says of the target."""
        return self.folder / "record.json"

    @property
    def log(self) -> Path:
        """Everything that the last build printed."""
        return self.folder / "build.log"

    @property
    def inventory(self) -> Path:
        """What was found in the image that the record names."""
        return self.folder / "inventory.json"

    @property
    def scan_output(self) -> Path:
        """Folder that the scanner's output arrives in."""
        return self.folder / "scan"

    def layers(self, note: Callable[[str], None]) -> Store:
        """Which layer of that image brought what, where that was read.

        The code that read it is no part of its version: the image may be gone by now, as with the
        inventory.
        """
        return self._cache(note).store("layers", SCHEMA, limit=_LIMIT, age=365 * DAY)

    def made(self, note: Callable[[str], None]) -> Store:
        """What was made of the inventory, by the very code that runs now."""
        return self._cache(note).store("made", code(), limit=_LIMIT, age=30 * DAY)

    def _cache(self, note: Callable[[str], None]) -> Cache:
        return Cache(self.folder, note, key=seal(b"cache", os.fsencode(self.folder.name)))


def images_folder(specification: Path) -> Path:
    """The OCI layout with the images that the engine `oci` has built of a specification file."""
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
                f"{folder} is tracked by Git ({tracked}), and what it says is true on one machine "
                f"alone; run `git rm -r --cached {FOLDER}`, and build again"
            )
        return cls(folder)

    def of(self, target: str) -> TargetFiles:
        """The files of the target with this identifier."""
        return TargetFiles(self.folder / target)

    @contextmanager
    def held(self, progress: Progress) -> Iterator[None]:
        """Keep other runs out; waits, and says so, while another one is in.

        The kernel lets go of the lock when its holder ends, however it ends.
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
                    f"another buildmatrix (process {holder or 'unknown'}) works in {self.folder}; "
                    "waiting until it is done"
                )
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            with writing(self.folder):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            yield
        finally:
            os.close(descriptor)
