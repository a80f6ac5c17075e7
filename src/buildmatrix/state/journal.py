"""The journal: what was built from what, so that the next run does only what is missing.

One record per target. Its key is a digest of everything that goes into the image; a record with
another key says nothing, nor does one without the seal of this machine. Records appear whole or
not at all, so a run may be killed at any moment.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from buildmatrix import store
from buildmatrix.engines.disk import writing
from buildmatrix.inventory.model import Inventory
from buildmatrix.inventory.writing import write_atomically
from buildmatrix.rules.model import ClimbedRung
from buildmatrix.state.folder import TargetFiles
from buildmatrix.state.seal import seal
from buildmatrix.threads import prepare_type

#: Part of every key: raised when the same inputs would give another image or inventory.
VERSION = "buildmatrix/journal/1"


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One target that was built and scanned."""

    key: str
    #: Name of the engine that has the image.
    engine: str = "docker"
    #: Name of the buildx builder that made it; None for the current one.
    builder: str | None = None
    #: Digests of the image's manifest and configuration: Docker names an image by either.
    digest: str
    config: str | None
    loaded: bool
    #: Its names on this machine: the staged one until all gates have passed, then its tags.
    tags: tuple[str, ...]
    #: sha256 of the stored inventory.
    inventory: str
    #: Seconds that the gates of its target took; build and scan alone where one did not hold.
    seconds: float
    #: Base images that the builder took, reference → digest, where it reported them.
    bases: Mapping[str, str] = {}
    #: Digests of smoke commands that this image passed.
    smoke: tuple[str, ...] = ()
    #: What this image was to climb and on which devices, as a digest, and how far it got.
    climbed: str = ""
    rungs: tuple[ClimbedRung, ...] = ()

    def is_at(self, present: Mapping[str, str]) -> bool:
        """Whether all tags lead to this image; `present` is what `Engine.present` says."""
        names = {self.digest, self.config or self.digest}
        return all(present.get(tag) in names for tag in self.tags)


class _Seal(msgspec.Struct):
    seal: str = ""


def stored(files: TargetFiles) -> BuildRecord | None:
    """The record of a target, if its inventory is still the one that it names."""
    record, is_sealed = _read(files)
    if record is None or not is_sealed:
        return None
    try:
        return record if sha256_of(files.inventory) == record.inventory else None
    except OSError:
        return None


def stored_inventory(files: TargetFiles) -> Inventory | None:
    """The inventory that the record of a target names; None without either.

    Raises `UndecidedError` for one that another version wrote.
    """
    return None if stored(files) is None else store.read(files.inventory)


def is_foreign(files: TargetFiles) -> bool:
    """Whether there is a record that this user did not write on this machine."""
    record, is_sealed = _read(files)
    return record is not None and not is_sealed


def seconds(files: TargetFiles) -> float:
    """Seconds that a target took, also on another machine: they decide nothing of its image."""
    record, _ = _read(files)
    return 0.0 if record is None else record.seconds


def _read(files: TargetFiles) -> tuple[BuildRecord | None, bool]:
    """The record, and whether it has the seal of this machine.

    None where it was never written, was deleted, or was written by another version.
    """
    try:
        data = files.record.read_bytes()
        record = msgspec.json.decode(data, type=prepare_type(BuildRecord))
        written = msgspec.json.decode(data, type=prepare_type(_Seal)).seal
    except (OSError, msgspec.MsgspecError):
        return None, False
    return record, hmac.compare_digest(written.encode(), _seal(files, record).encode())


def _seal(files: TargetFiles, record: BuildRecord) -> str:
    name = os.fsencode(files.folder.name)
    return seal(b"record", name, msgspec.json.encode(record)).hex()


def read(files: TargetFiles, key: str) -> BuildRecord | None:
    """The same, if it is about `key`: else the target has to be built again."""
    record = stored(files)
    return record if record is not None and record.key == key else None


def write(files: TargetFiles, record: BuildRecord) -> None:
    """Store a record. Raises `BuildError` when the disk is full."""
    with writing(files.folder):
        sealed = {**msgspec.to_builtins(record), "seal": _seal(files, record)}
        write_atomically(files.record, msgspec.json.format(msgspec.json.encode(sealed), indent=1))


def forget(files: TargetFiles) -> None:
    """Drop a record: the next run builds the target again."""
    with writing(files.folder):
        files.record.unlink(missing_ok=True)


def key(parts: Mapping[str, object]) -> str:
    """Digest of everything that goes into an image: values that JSON can hold."""
    text = json.dumps([VERSION, dict(parts)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
