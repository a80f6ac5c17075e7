"""Seals of the state folder: only files that this user wrote on this machine are trusted.

The folder is in the project, so it may come with a checkout, an archive or a restored CI cache,
with claims about images that were never built here. A key in the user's cache seals what is
decisive: the record of each target, with the digest of its inventory, and the entries of its
caches. Anything with another seal, or none, is ignored.
"""

from __future__ import annotations

import errno
import hmac
import os
import secrets
import stat
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from buildmatrix.errors import UsageError
from buildmatrix.store.cache import default_folder
from buildmatrix.trees.base import reason

#: Name of the key file, in the user's cache.
KEY_NAME: Final = "state.key"
_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class MachineKey:
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
