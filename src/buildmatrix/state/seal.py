"""Seals of the state folder: only what this user wrote on this machine is believed.

The folder lies in the project, so it may come with a checkout, an archive or a restored CI cache,
and then says of images what nobody here has seen. A key in the user's cache seals what decides
something: the record of each target, which has the digest of its inventory, and the entries of its
caches. What has another seal, or none, is as if it were not there.
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

#: The key, in the folder of the user's cache.
NAME: Final = "state.key"
_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class MachineKey:
    """The key of this user on this machine."""

    secret: bytes
    #: Why it ends with this process, where it could not be stored.
    trouble: str = ""


def machine_key() -> MachineKey:
    """Return the key, which is made when it is first needed."""
    try:
        return _key_in(default_folder(os.environ))
    except UsageError as error:
        return _transient(error.message)


def seal(*parts: bytes) -> bytes:
    """Return the seal of these parts, in this order."""
    code = hmac.new(machine_key().secret, digestmod="sha256")
    for part in parts:
        code.update(len(part).to_bytes(8, "big") + part)
    return code.digest()


@cache
def _transient(trouble: str) -> MachineKey:
    return MachineKey(secrets.token_bytes(_SIZE), trouble)


@cache
def _key_in(folder: Path) -> MachineKey:
    path = folder / NAME
    try:
        return MachineKey(_read(path) or _make(path))
    except OSError as error:
        return _transient(f"{path} cannot be used: {reason(error)}")


def _read(path: Path) -> bytes | None:
    """The key in a file; None for no file, and for one that others can read or have written."""
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


def _make(path: Path) -> bytes:
    """Store a new key, or return that of a run that was faster."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{NAME}.{secrets.token_hex(8)}")
    secret = secrets.token_bytes(_SIZE)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
        try:
            # The first of several runs names it.
            os.link(unfinished, path)
        except FileExistsError:
            if (other := _read(path)) is not None:
                return other
            unfinished.replace(path)
        except OSError:  # a file system without hard links
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return secret
