"""The journal: the inputs from which each target was built, so that the next run skips it.

One record per target. Its key is a digest of everything that goes into the image; a record with
another key, or without this machine's seal, is ignored. Records are written atomically, so a run
may be killed at any moment.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from buildmatrix.base.threads import prepare_type
from buildmatrix.engines.process import writing
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.inventory.writing import write_atomically
from buildmatrix.images import store
from buildmatrix.judge.model import ClimbedRung
from buildmatrix.sources.state.folder import TargetFiles, seal

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
