"""A folder of this machine as a tree: a site-packages, a virtual environment, a root file system.

Nothing here follows a symbolic link below the root: every folder is opened relative to its parent
with O_NOFOLLOW, so that no link leads outside, even one that replaces a folder during the walk.
What `stat` does not call a regular file is never opened: opening a FIFO blocks and opening a device
node may act on the device.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from buildmatrix.trees.base import Closing, File, Symlink, Tree, Trouble, Unreadable, reason

#: Deeper folders are reported and not entered; each level of a walk holds one descriptor.
DEEPEST = 128
#: Kernel file systems, when something is mounted there: their files are no part of an image, and
#: reading some of them has effects.
KERNEL_MOUNTS = frozenset({"proc", "sys", "dev"})

#: Device, inode, size, modification time and change time; the change time, in ns, comes last.
_STAMP = struct.Struct("<5Q")
_WORD = (1 << 64) - 1

#: What Linux reads ahead of one read. Smaller files are read whole by the first one.
_READ_AHEAD = 128 << 10

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: should a FIFO take a file's place after the walk, opening it must not hang.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def stamp(status: os.stat_result) -> bytes:
    """`File.stamp` of a file: what git's index looks at, too.

    The kernel alone sets ctime, so no tool that sets modification times (installers do) can make a
    changed file look like the old one.
    """
    return _STAMP.pack(
        status.st_dev & _WORD,
        status.st_ino & _WORD,
        status.st_size,
        status.st_mtime_ns & _WORD,
        status.st_ctime_ns & _WORD,
    )


def changed_ns(stamp: bytes) -> int:
    """When a file last changed by its stamp, in nanoseconds since 1970."""
    *_, changed = _STAMP.unpack(stamp)
    return int(changed)


class DirectoryTree(Closing, Tree):
    """The folder `root`, which may itself be named by a link. Raises OSError if it is no folder.

    Holds some descriptors; `close` or a `with` statement frees them.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Files are read folder by folder: the last folder and those above it are kept open instead
        # of being looked up component by component for each file.
        self._last: str | None = None
        self._opened: list[tuple[str, int]] = []

    def close(self) -> None:
        """Free the descriptors; the tree cannot be used afterwards."""
        self._forget(0)
        os.close(self._root)

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: depth first, the names of each folder sorted."""
        return self._walk(os.dup(self._root), "", 0)

    def _walk(self, folder: int, prefix: str, depth: int) -> Iterator[File | Symlink | Trouble]:
        """Everything below the open `folder`, which is closed at the end."""
        try:
            device = os.fstat(folder).st_dev
            with os.scandir(folder) as entries:
                listing = sorted(entries, key=lambda entry: entry.name)
            for entry in listing:
                path = prefix + entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        yield from self._enter(folder, device, entry.name, path, depth)
                    elif entry.is_symlink():
                        yield Symlink(path, os.readlink(entry.name, dir_fd=folder))
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        identity = (status.st_dev, status.st_ino) if status.st_nlink > 1 else None
                        yield File(path, status.st_size, identity, stamp(status))
                except OSError as error:
                    yield Trouble(path, reason(error))
        finally:
            os.close(folder)

    def _enter(
        self, parent: int, device: int, name: str, path: str, depth: int
    ) -> Iterator[File | Symlink | Trouble]:
        if depth == DEEPEST:
            yield Trouble(path, f"folders nested more than {DEEPEST} deep")
            return
        folder = os.open(name, _FOLDER, dir_fd=parent)
        if name in KERNEL_MOUNTS and os.fstat(folder).st_dev != device:
            os.close(folder)
            return
        yield from self._walk(folder, path + "/", depth + 1)

    def open(self, path: str) -> _DirectoryFile:
        """See `Tree.open`; raises `Unreadable` for what is no regular file (any more)."""
        parent, _, name = path.rpartition("/")
        descriptor = os.open(name, _FILE, dir_fd=self._folder(parent))
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise Unreadable("no regular file any more")
        return _DirectoryFile(descriptor, status.st_size)

    def _folder(self, path: str) -> int:
        """A descriptor of the folder `path`, valid until the next call."""
        if path != self._last:
            names = path.split("/") if path else []
            common = 0
            for (opened, _), name in zip(self._opened, names, strict=False):
                if opened != name:
                    break
                common += 1
            self._forget(common)
            for name in names[common:]:
                if name == "..":
                    raise Unreadable("a path that leads out of the tree")
                above = self._opened[-1][1] if self._opened else self._root
                self._opened.append((name, os.open(name, _FOLDER, dir_fd=above)))
            self._last = path
        return self._opened[-1][1] if self._opened else self._root

    def _forget(self, count: int) -> None:
        """Close all open folders but the first `kept`."""
        self._last = None
        while len(self._opened) > count:
            os.close(self._opened.pop()[1])


class _DirectoryFile(Closing):
    """Reads with pread(2), not through a mapping: a file that shrinks must not end in SIGBUS."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self.bytes_read = 0
        # Headers lie at both ends of a file: read-ahead would fetch 128 KiB around each of them.
        if size > _READ_AHEAD and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def close(self) -> None:
        """See `Closing.close`."""
        os.close(self._descriptor)

    def read(self, offset: int, length: int) -> bytes:
        # pread allocates what it is asked for, so a length taken from a lying header is cut here.
        data = os.pread(self._descriptor, max(0, min(length, self._size - offset)), offset)
        self.bytes_read += len(data)
        return data
