"""The state folder: sealed files of one machine, which may be deleted at any time.

`<folder>/lock` is locked by the current run, `<folder>/images` contains images built by the engine
`oci`, and `<folder>/<target>/` a target's record, log, inventory and temporary files of the engine.
Decisive files are sealed (`MachineKey`).

One record per target. Its key is a digest of everything that goes into the image; a record with
another key, or without this machine's seal, is ignored. Records are written atomically, so a run
may be killed at any moment.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from buildmatrix.base import child
from buildmatrix.base.errors import UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.base.threads import prepare_type
from buildmatrix.engines.process import writing
from buildmatrix.facts.files import keep_out_of_git
from buildmatrix.facts.inventory.archive import write_atomically
from buildmatrix.facts.inventory.model import SCHEMA, Inventory
from buildmatrix.facts.trees.base import reason
from buildmatrix.images import store
from buildmatrix.images.store.cache import DAY, Cache, Store, default_folder, source_digest
from buildmatrix.judge.model import ClimbedRung
from buildmatrix.matrix.model import STATE

# Seals: only files that this user wrote on this machine are trusted.
#
# The folder is in the project, so it may come with a checkout, an archive or a restored CI cache,
# with claims about images that were never built here. A key in the user's cache seals decisive
# files: the record of each target, with the digest of its inventory, and the entries of its caches.
# Files with another seal, or none, are ignored.


#: Name of the key file, in the user's cache.
KEY_NAME: Final = "state.key"
_SIZE: Final = 32


class MachineKey(Struct, frozen=True):
    """Secret key of this user on this machine."""

    secret: bytes
    #: Reason why it is valid for this process only, if it could not be stored.
    trouble: str = ""


def machine_key() -> MachineKey:
    """Return the key, created on first use."""
    try:
        return _load_key(default_folder(os.environ))
    except UsageError as error:
        return _transient_key(error.message)


def seal(*parts: bytes) -> bytes:
    """Return the seal of these parts, in this order."""
    code = hmac.new(machine_key().secret, digestmod="sha256")
    for part in parts:
        code.update(len(part).to_bytes(8, "big") + part)
    return code.digest()


@cache
def _transient_key(trouble: str) -> MachineKey:
    return MachineKey(secrets.token_bytes(_SIZE), trouble)


@cache
def _load_key(folder: Path) -> MachineKey:
    path = folder / KEY_NAME
    try:
        return MachineKey(_read_key(path) or _create_key(path))
    except OSError as error:
        return _transient_key(f"{path} cannot be used: {reason(error)}")


def _read_key(path: Path) -> bytes | None:
    """Read the key; None if there is no file, or others can read or write it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link
            return None
        raise
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        is_private = (
            stat.S_ISREG(status.st_mode)
            and status.st_uid == os.geteuid()
            and not status.st_mode & 0o077
        )
        secret = file.read(_SIZE + 1) if is_private else b""
    return secret if len(secret) == _SIZE else None


def _create_key(path: Path) -> bytes:
    """Store a new key, or return that of a concurrent run."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{KEY_NAME}.{secrets.token_hex(8)}")
    secret = secrets.token_bytes(_SIZE)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
        try:
            # The first of several runs wins.
            os.link(unfinished, path)
        except FileExistsError:
            if (other := _read_key(path)) is not None:
                return other
            unfinished.replace(path)
        except OSError:  # no hard links
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return secret


#: The state folder, relative to the specification.
FOLDER = STATE
#: Cached bytes per target: 2,600 binaries have 400 kB of layers.
_MAX_CACHED_BYTES = 256 << 20


class TargetFiles(Struct, frozen=True):
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


class State(Struct, frozen=True):
    """The state folder of one specification."""

    folder: Path

    @classmethod
    def beside(cls, root: Path) -> State:
        """Return the state of the specification in `root`. Raises `UsageError` if Git tracks it."""
        folder = root / FOLDER
        if (tracked := child.tracked_file(folder)) is not None:
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


#: Part of every key: raised when equal inputs give another image or inventory.
VERSION = "buildmatrix/journal/1"


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record of a target that was built and scanned."""

    key: str
    #: Engine that has the image.
    engine: str = "docker"
    #: buildx builder of the image; None for the current one.
    builder: str | None = None
    #: Digests of the image's manifest and configuration: Docker uses either as a name.
    digest: str
    config: str | None
    loaded: bool
    #: Local names: the staged one until all gates have passed, then the tags.
    tags: tuple[str, ...]
    #: SHA-256 of the stored inventory.
    inventory: str
    #: Duration of the target's gates in seconds; only build and scan if one failed.
    seconds: float
    #: Base images by reference → digest, if the builder reported them.
    bases: Mapping[str, str] = {}
    #: Digests of smoke commands that this image passed.
    smoke: tuple[str, ...] = ()
    #: Digest of the planned rungs and devices, and the results of the rungs.
    climbed: str = ""
    rungs: tuple[ClimbedRung, ...] = ()

    def is_at(self, present: Mapping[str, str]) -> bool:
        """Return True if all tags refer to this image; `present` is from `Engine.present`."""
        names = {self.digest, self.config or self.digest}
        return all(present.get(tag) in names for tag in self.tags)


class _Seal(msgspec.Struct):
    seal: str = ""


def load(files: TargetFiles) -> BuildRecord | None:
    """Return the record of a target, if its inventory is unchanged."""
    record, is_sealed = _read_record(files)
    if record is None or not is_sealed:
        return None
    try:
        return record if file_sha256(files.inventory) == record.inventory else None
    except OSError:
        return None


def load_inventory(files: TargetFiles) -> Inventory | None:
    """Return the inventory in the record of a target; None without either.

    Raises `UndecidedError` if another version wrote it.
    """
    return None if load(files) is None else store.read(files.inventory)


def is_foreign(files: TargetFiles) -> bool:
    """Return True if there is a record that this user did not write on this machine."""
    record, is_sealed = _read_record(files)
    return record is not None and not is_sealed


def load_seconds(files: TargetFiles) -> float:
    """Return the duration of a target, from any machine: it does not affect the image."""
    record, _ = _read_record(files)
    return 0.0 if record is None else record.seconds


def _read_record(files: TargetFiles) -> tuple[BuildRecord | None, bool]:
    """Return the record, and True if it has the seal of this machine.

    None if it is missing or was written by another version.
    """
    try:
        data = files.record.read_bytes()
        record = msgspec.json.decode(data, type=prepare_type(BuildRecord))
        written = msgspec.json.decode(data, type=prepare_type(_Seal)).seal
    except (OSError, msgspec.MsgspecError):
        return None, False
    return record, hmac.compare_digest(written.encode(), _record_seal(files, record).encode())


def _record_seal(files: TargetFiles, record: BuildRecord) -> str:
    name = os.fsencode(files.folder.name)
    return seal(b"record", name, msgspec.json.encode(record)).hex()


def write(files: TargetFiles, record: BuildRecord) -> None:
    """Store a record. Raises `BuildError` if the disk is full."""
    with writing(files.folder):
        sealed = {**msgspec.to_builtins(record), "seal": _record_seal(files, record)}
        write_atomically(files.record, msgspec.json.format(msgspec.json.encode(sealed), indent=1))


def forget(files: TargetFiles) -> None:
    """Delete a record: the next run rebuilds the target."""
    with writing(files.folder):
        files.record.unlink(missing_ok=True)


def make_key(parts: Mapping[str, object]) -> str:
    """Return the digest of everything that goes into an image: JSON values."""
    text = json.dumps([VERSION, dict(parts)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
