"""A place for entries that many machines share: a folder, S3, GCS, Azure, what fsspec opens.

An entry lies at `<place>/<kind>/<name>`, with the same bytes as in a cache on disk
(`store.cache`), which is also where they are checked: what was cut off, damaged or swapped is as if
it were not there. Nothing is ever removed here: the place has rules of its own for what is old.

A place that is full, read-only, slow or gone fails no run. Each request ends within a time, and a
place that fails several times in a row is left alone for a while.
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
from socket import gethostname
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from buildmatrix.errors import ComponentError, UsageError
from buildmatrix.inventory.writing import open_atomically
from buildmatrix.text import printable, shown
from buildmatrix.threads import ended_within
from buildmatrix.trees.base import reason

Answer = TypeVar("Answer")
Bytes = bytes | memoryview
#: What is done there; each fails by itself, as where only reading is allowed.
Action = Literal["be read", "be written"]

#: Seconds that one request may take, its repetitions included, and for each MB that is written.
PATIENCE = 45.0
PATIENCE_PER_MB = 0.5
#: Failures in a row after which a place is left alone, and for how many seconds.
FAILURES = 3
REST = 30.0
#: Characters that are shown of what a place says itself.
_LONGEST = 300
#: What drivers are given, so that they give up before `PATIENCE` is at its end.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "s3": {
        "config_kwargs": {
            "connect_timeout": 5,
            "read_timeout": 20,
            "retries": {"max_attempts": 2, "mode": "standard"},
        }
    }
}


#: Drivers that were made, for the life of the process, as fsspec itself would keep them: s3fs
#: closes a client where it is collected, which may be in the thread of another event loop.
_DRIVERS: list[Any] = []
#: File systems on disks of this machine, as Linux calls them.
_NEAR = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})


class Place(ABC):
    """Where entries lie. Every method raises what its driver raises."""

    def is_near(self) -> bool:
        """Whether nothing that is asked of it waits for another machine."""
        return False

    def renew(self) -> None:  # noqa: B027 (most places have nothing to renew)
        """Take up credentials anew, after a failure: those that it has may have run out."""

    @abstractmethod
    def read(self, kind: str, name: str, most: int) -> bytes | None:
        """The bytes of an entry, at most `most` and one more; None where there is none."""

    @abstractmethod
    def has(self, kind: str, name: str) -> bool:
        """Whether there is an entry, whatever its bytes are."""

    @abstractmethod
    def write(self, kind: str, name: str, parts: Sequence[Bytes]) -> None:
        """Put an entry there: under its name lie all of its bytes, or those of before."""


class FolderPlace(Place):
    """A folder, of this machine or of a network file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_near(self) -> bool:
        """See `Place.is_near`; as the kernel says it, else not."""
        folder = self._folder
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return False
        kinds = file_systems(mounts, folder.stat().st_dev)
        return bool(kinds) and kinds <= _NEAR

    def read(self, kind: str, name: str, most: int) -> bytes | None:
        """See `Place.read`."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._folder / kind / name, flags)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return b""
            return file.read(min(status.st_size, most + 1))

    def has(self, kind: str, name: str) -> bool:
        """See `Place.has`."""
        try:
            return (self._folder / kind / name).stat().st_size > 0
        except FileNotFoundError:
            return False

    def write(self, kind: str, name: str, parts: Sequence[Bytes]) -> None:
        """See `Place.write`: written beside its place and renamed into it."""
        path = self._folder / kind / name
        if path.parent.is_symlink():
            raise OSError(f"{path.parent} is a link")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomically(path) as file:
            for part in parts:
                file.write(part)


class FsspecPlace(Place):
    """What fsspec has a driver for. Object stores put an object there as a whole or not at all."""

    def __init__(self, opened: Callable[[], tuple[Any, str]]) -> None:
        self._opened = opened
        self.renew()

    def renew(self) -> None:
        """See `Place.renew`."""
        files, root = self._opened()
        _DRIVERS.append(files)
        self._files, self._root = files, root.rstrip("/")

    @property
    def driver(self) -> str:
        """The package of the driver: `s3fs`."""
        return type(self._files).__module__.partition(".")[0]

    def read(self, kind: str, name: str, most: int) -> bytes | None:
        """See `Place.read`."""
        return self._part(kind, name, most + 1)

    def has(self, kind: str, name: str) -> bool:
        """See `Place.has`: one request, where drivers make two to tell a folder from nothing."""
        return bool(self._part(kind, name, 1))

    def write(self, kind: str, name: str, parts: Sequence[Bytes]) -> None:
        """See `Place.write`."""
        self._files.pipe_file(f"{self._root}/{kind}/{name}", b"".join(parts))

    def _part(self, kind: str, name: str, end: int) -> bytes | None:
        try:
            return bytes(self._files.cat_file(f"{self._root}/{kind}/{name}", start=0, end=end))
        except FileNotFoundError:
            return None
        except Exception as error:
            # Of an empty object no part can be had: RFC 9110, "416 Range Not Satisfiable". Drivers
            # say it in their own ways: s3fs, adlfs, gcsfs.
            if (
                getattr(error, "errno", None) == errno.EINVAL
                or getattr(error, "status_code", None) == 416
                or (isinstance(error, OSError) and "416" in str(error))
            ):
                return b""
            raise


def open_place(url: str) -> Place:
    """The place at `url`, as fsspec spells it, or a path.

    Raises `UsageError` for what is no address or has a secret in it, and `ComponentError` where a
    package is missing. Nothing is asked for yet.
    """
    if "://" not in url and "::" not in url:
        return FolderPlace(Path(url).absolute())
    label = printable(shown(url))
    parts = urlsplit(url)
    if parts.password or (
        parts.username and parts.scheme not in ("abfs", "abfss", "az", "ssh", "sftp")
    ):
        raise UsageError(
            f"the store {label} has credentials in its address, where everybody sees them; leave "
            "them to the environment or the files that its driver reads"
        )
    if parts.scheme == "file":
        return FolderPlace(Path(parts.path))
    try:
        import fsspec
    except ImportError:
        raise ComponentError(
            f"the store {label} needs the package fsspec: pip install 'buildmatrix[fleet]'"
        ) from None
    protocol = parts.scheme.rpartition("::")[2]
    try:
        place = FsspecPlace(
            lambda: fsspec.core.url_to_fs(
                url,
                use_listings_cache=False,
                # Drivers that fsspec keeps for a process keep the credentials that they began with.
                skip_instance_cache=True,
                **_OPTIONS.get(protocol, {}),
            )
        )
    except ImportError as error:
        raise ComponentError(
            f"the store {label} needs a driver: {printable(str(error))[:_LONGEST]} "
            "(it has to be installed where the workers run, too)"
        ) from None
    except (ValueError, TypeError) as error:
        raise UsageError(f"{label} is no store: {printable(str(error))[:_LONGEST]}") from None
    # What a driver logs besides would stand on the terminal, for each entry that is not there.
    logging.getLogger(place.driver).setLevel(logging.CRITICAL)
    return place


def file_systems(mounts: str, device: int) -> set[str]:
    """What kinds of file systems a device number stands for: proc_pid_mountinfo(5)."""
    number = f"{os.major(device)}:{os.minor(device)}"
    lines = (line.partition(" - ") for line in mounts.splitlines())
    # The third field, and the first behind the hyphen.
    return {kind.split()[0] for mount, _, kind in lines if mount.split()[2] == number}


class SharedEntries:
    """The entries of a place, for all threads at once; nothing in here raises.

    `note` is called once for each action that fails, with a sentence.
    """

    def __init__(
        self,
        place: Place,
        label: str,
        note: Callable[[str], None] = lambda _: None,
        *,
        patience: float = PATIENCE,
        rest: float = REST,
    ) -> None:
        self._place = place
        self._label = printable(shown(label))
        self._note = note
        self._patience = patience
        self._rest = rest
        self._lock = threading.Lock()
        self._said: set[Action] = set()
        self._failures: dict[Action, int] = {}
        #: When each action may be tried again.
        self._rests_until: dict[Action, float] = {}
        #: See `Place.is_near`; not before something was asked of it.
        self.is_near: bool | None = None

    def read(self, kind: str, name: str, most: int) -> bytes | None:
        """The bytes of an entry; None where there is none, where it has more, or on failure."""
        data = self._tried("be read", lambda: self._place.read(kind, name, most))
        return data if data is None or len(data) <= most else None

    def has(self, kind: str, name: str) -> bool:
        """Whether there is an entry, as far as one can tell without its bytes."""
        return bool(self._tried("be read", lambda: self._place.has(kind, name)))

    def write(self, kind: str, name: str, parts: Sequence[Bytes]) -> bool:
        """Keep an entry, if possible; whether it was."""

        def written() -> bool:
            self._place.write(kind, name, parts)
            return True

        return bool(self._tried("be written", written, sum(map(len, parts))))

    def _tried(self, action: Action, work: Callable[[], Answer], size: int = 0) -> Answer | None:
        if time.monotonic() < self._rests_until.get(action, 0.0):
            return None
        answer = self._answer(self._patience + PATIENCE_PER_MB * size / 1e6, work)
        if isinstance(answer, _Failure):
            self._failed(action, answer)
            return None
        self._failures[action] = 0
        return answer

    def _answer(self, seconds: float, work: Callable[[], Answer]) -> Answer | _Failure:
        if self.is_near is None:
            is_near = _within(seconds, self._place.is_near)
            if isinstance(is_near, _Failure):
                return is_near
            self.is_near = is_near
        # A thread for each request takes a tenth of what a worker does for a small image.
        return _tried(work) if self.is_near else _within(seconds, work)

    def _failed(self, action: Action, failure: _Failure) -> None:
        with self._lock:
            count = self._failures[action] = self._failures.get(action, 0) + 1
            if failure.is_slow or count >= FAILURES:
                self._rests_until[action] = time.monotonic() + self._rest
            is_new = action not in self._said
            self._said.add(action)
        with suppress(Exception):
            self._place.renew()
        if is_new:
            self._note(
                f"the store {self._label} cannot {action}: {failure.why}; what it lacks is read "
                f"again by each worker of {gethostname()}"
            )


class _Failure:
    """Why a request came to nothing."""

    def __init__(self, why: str, *, is_slow: bool = False) -> None:
        self.why = why
        self.is_slow = is_slow


def _tried(work: Callable[[], Answer]) -> Answer | _Failure:
    """What `work` returns, or why it fails."""
    try:
        return work()
    except Exception as error:
        return _Failure(_why(error))


def _within(seconds: float, work: Callable[[], Answer]) -> Answer | _Failure:
    """The same, or that it takes longer."""
    try:
        ended = ended_within(seconds, work, "store")
        if ended is not None:
            return ended.result()
    except Exception as error:
        return _Failure(_why(error))
    return _Failure(f"it does not answer within {seconds:.0f} s", is_slow=True)


def _why(error: Exception) -> str:
    """One line of what a driver says."""
    text = reason(error) if isinstance(error, OSError) and error.strerror else str(error)
    text = printable(shown(" ".join(text.split()))).rstrip(".") or type(error).__name__
    return text[:_LONGEST]
