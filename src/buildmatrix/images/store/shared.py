"""Entries shared by many machines, in a folder, S3, GCS, Azure or any other fsspec store.

An entry is at `<store>/<kind>/<name>`, with the same bytes as in a cache on disk (`store.cache`),
which also verifies it: truncated, damaged or swapped entries are ignored. Entries are never removed
here: the store has its own rules for old ones.

A store that is full, read-only, slow or missing fails no run. Each request has a timeout, and a
store that fails several times in a row is not used for a while.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from buildmatrix.base.errors import ComponentError, UsageError, describe_extra
from buildmatrix.base.text import printable, shown
from buildmatrix.base.threads import ended_within
from buildmatrix.facts.inventory.archive import open_atomically
from buildmatrix.facts.trees.base import reason

Result = TypeVar("Result")
Bytes = bytes | memoryview
#: Actions fail separately, for example in a read-only store.
Action = Literal["be read", "be written"]

#: Timeout of a request in seconds, including retries, and extra time per MB to write.
TIMEOUT = 45.0
TIMEOUT_PER_MB = 0.5
#: Failures in a row until a store is not used, and the pause in seconds.
MAX_FAILURES = 3
PAUSE = 30.0
#: Seconds for which a used entry counts as just used.
_JUST_USED = 3600.0
#: Characters of a store's message to show.
_MAX_MESSAGE = 300
#: Options of drivers, so that they time out before `TIMEOUT`.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "s3": {
        "config_kwargs": {
            "connect_timeout": 5,
            "read_timeout": 20,
            "retries": {"max_attempts": 2, "mode": "standard"},
        }
    }
}


#: Drivers, kept for the life of the process as in fsspec: s3fs closes a client when it is garbage
#: collected, which may happen in the thread of another event loop.
_DRIVERS: list[Any] = []
#: Local file systems, as named by Linux.
_NEAR = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})


class EntryStorage(ABC):
    """Location of entries. Every method raises its driver's errors."""

    def is_near(self) -> bool:
        """Return True if no request waits for another machine."""
        return False

    def renew(self) -> None:  # noqa: B027 (most places have nothing to renew)
        """Reload credentials after a failure: they may have expired."""

    @abstractmethod
    def read(self, kind: str, name: str, most: int) -> bytes | None:
        """Return the bytes of an entry, at most `most` plus one; None if there is none."""

    @abstractmethod
    def has(self, kind: str, name: str) -> bool:
        """Return True if there is an entry, valid or not."""

    @abstractmethod
    def write(self, kind: str, name: str, parts: Sequence[Bytes]) -> None:
        """Write an entry atomically: readers see all of its bytes, or the previous ones."""


class FolderStorage(EntryStorage):
    """A folder, local or on a network file system. Links are not followed.

    With `is_private`, entries are for this user alone; with `marks_use`, a read entry is as new.
    """

    def __init__(self, folder: Path, *, is_private: bool = False, marks_use: bool = False) -> None:
        self.folder = folder
        self._is_private = is_private
        self._marks_use = marks_use

    def is_near(self) -> bool:
        """See `EntryStorage.is_near`; False if the kernel does not tell."""
        folder = self.folder
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return False
        kinds = file_system_types(mounts, folder.stat().st_dev)
        return bool(kinds) and kinds <= _NEAR

    def read(self, kind: str, name: str, most: int) -> bytes | None:
        """See `EntryStorage.read`; empty for anything but a file of at most `most` bytes."""
        # O_NONBLOCK: a pipe must not block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self.folder / kind / name, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return b""
            raise
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                return b""
            if self._marks_use and time.time() - status.st_mtime > _JUST_USED:
                with suppress(OSError):  # a read-only folder is still usable
                    os.utime(descriptor)
            return file.read(status.st_size)

    def has(self, kind: str, name: str) -> bool:
        """See `EntryStorage.has`."""
        try:
            return (self.folder / kind / name).stat().st_size > 0
        except FileNotFoundError:
            return False

    def write(self, kind: str, name: str, parts: Sequence[Bytes]) -> None:
        """See `EntryStorage.write`: by a temporary file that is renamed."""
        path = self.folder / kind / name
        if path.parent.is_symlink():
            raise OSError(f"{path.parent} is a link")
        path.parent.mkdir(0o700 if self._is_private else 0o777, parents=True, exist_ok=True)
        with open_atomically(path, is_private=self._is_private) as file:
            for part in parts:
                file.write(part)


class FsspecStorage(EntryStorage):
    """Any fsspec driver. Object stores write objects atomically."""

    def __init__(self, opened: Callable[[], tuple[Any, str]]) -> None:
        self._opened = opened
        self.renew()

    def renew(self) -> None:
        """See `EntryStorage.renew`."""
        files, root = self._opened()
        _DRIVERS.append(files)
        self._files, self._root = files, root.rstrip("/")

    @property
    def driver(self) -> str:
        """Package of the driver: `s3fs`."""
        return type(self._files).__module__.partition(".")[0]

    def read(self, kind: str, name: str, most: int) -> bytes | None:
        """See `EntryStorage.read`."""
        return self._part(kind, name, most + 1)

    def has(self, kind: str, name: str) -> bool:
        """See `EntryStorage.has`: in one request, while drivers need two to exclude folders."""
        return bool(self._part(kind, name, 1))

    def write(self, kind: str, name: str, parts: Sequence[Bytes]) -> None:
        """See `EntryStorage.write`."""
        self._files.pipe_file(f"{self._root}/{kind}/{name}", b"".join(parts))

    def _part(self, kind: str, name: str, end: int) -> bytes | None:
        try:
            return bytes(self._files.cat_file(f"{self._root}/{kind}/{name}", start=0, end=end))
        except FileNotFoundError:
            return None
        except Exception as error:
            # A range of an empty object cannot be read: RFC 9110, "416 Range Not Satisfiable".
            # Drivers report it in different ways: s3fs, adlfs, gcsfs.
            if (
                getattr(error, "errno", None) == errno.EINVAL
                or getattr(error, "status_code", None) == 416
                or (isinstance(error, OSError) and "416" in str(error))
            ):
                return b""
            raise


def open_storage(url: str) -> EntryStorage:
    """Return the store at `url`, as in fsspec, or at a path. Sends no request yet.

    Raises `UsageError` for an invalid address or one with a secret, and `ComponentError` for a
    missing package.
    """
    if "://" not in url and "::" not in url:
        return FolderStorage(Path(url).absolute())
    label = printable(shown(url))
    parts = urlsplit(url)
    if parts.password or (
        parts.username and parts.scheme not in ("abfs", "abfss", "az", "ssh", "sftp")
    ):
        raise UsageError(
            f"the store {label} has credentials in its address, where everybody can see them; "
            "use the environment or the files that its driver reads"
        )
    if parts.scheme == "file":
        return FolderStorage(Path(parts.path))
    try:
        import fsspec
    except ImportError:
        raise ComponentError(
            f"the store {label} requires the package fsspec: {describe_extra('fleet')}"
        ) from None
    protocol = parts.scheme.rpartition("::")[2]
    try:
        place = FsspecStorage(
            lambda: fsspec.core.url_to_fs(
                url,
                use_listings_cache=False,
                # fsspec's cached drivers keep their first credentials.
                skip_instance_cache=True,
                **_OPTIONS.get(protocol, {}),
            )
        )
    except ImportError as error:
        raise ComponentError(
            f"the store {label} requires a driver: {printable(str(error))[:_MAX_MESSAGE]} "
            "(install it where the workers run, too)"
        ) from None
    except (ValueError, TypeError) as error:
        text = printable(str(error))[:_MAX_MESSAGE]
        raise UsageError(f"{label} is not a valid store: {text}") from None
    # Drivers log each missing entry to the terminal.
    logging.getLogger(place.driver).setLevel(logging.CRITICAL)
    return place


def file_system_types(mounts: str, device: int) -> set[str]:
    """Return the kinds of file systems with a device number: proc_pid_mountinfo(5)."""
    number = f"{os.major(device)}:{os.minor(device)}"
    lines = (line.partition(" - ") for line in mounts.splitlines())
    # The third field, and the first one after the hyphen.
    return {kind.split()[0] for mount, _, kind in lines if mount.split()[2] == number}


class SharedEntries:
    """Entries of a store, for all threads; never raises.

    `note` is called once per kind of failed action, with a sentence.
    """

    def __init__(
        self,
        place: EntryStorage,
        label: str,
        note: Callable[[str], None] = lambda _: None,
        *,
        patience: float = TIMEOUT,
        rest: float = PAUSE,
    ) -> None:
        self._place = place
        self._label = printable(shown(label))
        self._note = note
        self._patience = patience
        self._rest = rest
        self._lock = threading.Lock()
        self._reported: set[Action] = set()
        self._failures: dict[Action, int] = {}
        #: Action → time of the next attempt.
        self._paused_until: dict[Action, float] = {}
        #: See `EntryStorage.is_near`; None before the first request.
        self.is_near: bool | None = None

    def read(self, kind: str, name: str, most: int) -> bytes | None:
        """Return an entry; None if there is none, it is larger than `most`, or the read failed."""
        data = self._request("be read", lambda: self._place.read(kind, name, most))
        return data if data is None or len(data) <= most else None

    def has(self, kind: str, name: str) -> bool:
        """Return True if there is probably an entry; does not read it."""
        return bool(self._request("be read", lambda: self._place.has(kind, name)))

    def write(self, kind: str, name: str, parts: Sequence[Bytes]) -> bool:
        """Try to write an entry; return True if it was written."""

        def written() -> bool:
            self._place.write(kind, name, parts)
            return True

        return bool(self._request("be written", written, sum(map(len, parts))))

    def _request(self, action: Action, work: Callable[[], Result], size: int = 0) -> Result | None:
        if time.monotonic() < self._paused_until.get(action, 0.0):
            return None
        seconds = self._patience + TIMEOUT_PER_MB * size / 1e6
        try:
            if self.is_near is None:
                self.is_near = _call_with_timeout(seconds, self._place.is_near)
            # A thread per request takes a tenth of a worker's time for a small image.
            answer = work() if self.is_near else _call_with_timeout(seconds, work)
        except Exception as error:
            self._record_failure(action, error)
            return None
        self._failures[action] = 0
        return answer

    def _record_failure(self, action: Action, error: Exception) -> None:
        with self._lock:
            count = self._failures[action] = self._failures.get(action, 0) + 1
            if isinstance(error, _SlowRequest) or count >= MAX_FAILURES:
                self._paused_until[action] = time.monotonic() + self._rest
            is_new = action not in self._reported
            self._reported.add(action)
        with suppress(Exception):
            self._place.renew()
        if is_new:
            self._note(
                f"the store {self._label} cannot {action}: {_format_error(error)}; missing entries "
                f"are read again by each worker of {os.uname().nodename}"
            )


class _SlowRequest(Exception):
    """A request without an answer in time."""


def _call_with_timeout(seconds: float, work: Callable[[], Result]) -> Result:
    """Call `work` in a thread with a timeout. Raises `_SlowRequest`, and errors of `work`."""
    ended = ended_within(seconds, work, "store")
    if ended is None:
        raise _SlowRequest(f"it does not answer within {seconds:.0f} s")
    return ended.result()


def _format_error(error: Exception) -> str:
    """Return a driver's message on one line."""
    text = reason(error) if isinstance(error, OSError) and error.strerror else str(error)
    text = printable(shown(" ".join(text.split()))).rstrip(".") or type(error).__name__
    return text[:_MAX_MESSAGE]
