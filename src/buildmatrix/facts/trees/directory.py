"""Folders of this machine as trees: site-packages, virtual environments, root file systems.

Symbolic links below the root are never followed: every folder is opened relative to its parent with
O_NOFOLLOW, so that no link leads outside, even one that replaces a folder during the walk. Only
regular files are opened: opening a FIFO blocks and opening a device node may act on the device.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from buildmatrix.facts.trees.archive import OpenFile
from buildmatrix.facts.trees.base import Closing, File, Symlink, Tree, Trouble, Unreadable, reason

#: Maximum depth; deeper folders are reported. Each level of a walk holds one descriptor.
MAX_DEPTH = 128
#: Mount points of kernel file systems: their files are not part of an image, and reading some of
#: them has effects.
KERNEL_MOUNTS = frozenset({"proc", "sys", "dev"})

#: Device, inode, size, modification time, change time in ns.
_STAMP = struct.Struct("<5Q")
_UINT64 = (1 << 64) - 1

#: Linux's read-ahead. Smaller files are read whole by the first read.
_READ_AHEAD = 128 << 10

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: if a FIFO replaces a file after the walk, opening it must not hang.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def make_stamp(status: os.stat_result) -> bytes:
    """Return `File.stamp` of a file, from the fields that git's index compares.

    Only the kernel sets ctime, so that no tool that sets modification times (as installers do) can
    make a changed file look unchanged.
    """
    return _STAMP.pack(
        status.st_dev & _UINT64,
        status.st_ino & _UINT64,
        status.st_size,
        status.st_mtime_ns & _UINT64,
        status.st_ctime_ns & _UINT64,
    )


def changed_ns(stamp: bytes) -> int:
    """Return the time of the last change in a stamp, in nanoseconds since 1970."""
    *_, changed = _STAMP.unpack(stamp)
    return int(changed)


class DirectoryTree(Closing, Tree):
    """The folder `root`, which may be a link itself. Raises OSError if it is not a folder.

    Holds some descriptors until `close` or the end of a `with` statement.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Files are read folder by folder: the current folder and its parents stay open, so that
        # paths are not resolved for each file.
        self._last: str | None = None
        self._opened: list[tuple[str, int]] = []

    def close(self) -> None:
        """Close the descriptors; the tree cannot be used afterwards."""
        self._close_below(0)
        os.close(self._root)

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: depth first, the names of each folder sorted."""
        return self._walk(os.dup(self._root), "", 0)

    def _walk(self, folder: int, prefix: str, depth: int) -> Iterator[File | Symlink | Trouble]:
        """Yield everything below the open `folder`, and close it."""
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
                        yield File(path, status.st_size, identity, make_stamp(status))
                except OSError as error:
                    yield Trouble(path, reason(error))
        finally:
            os.close(folder)

    def _enter(
        self, parent: int, device: int, name: str, path: str, depth: int
    ) -> Iterator[File | Symlink | Trouble]:
        if depth == MAX_DEPTH:
            yield Trouble(path, f"folders nested more than {MAX_DEPTH} deep")
            return
        folder = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        if name in KERNEL_MOUNTS and os.fstat(folder).st_dev != device:
            os.close(folder)
            return
        yield from self._walk(folder, path + "/", depth + 1)

    def open(self, path: str) -> _DirectoryFile:
        """See `Tree.open`; raises `Unreadable` if the path is no longer a regular file."""
        parent, _, name = path.rpartition("/")
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=self._open_folder(parent))
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise Unreadable("no longer a regular file")
        return _DirectoryFile(descriptor, status.st_size)

    def _open_folder(self, path: str) -> int:
        """Return a descriptor of the folder `path`, valid until the next call."""
        if path != self._last:
            names = path.split("/") if path else []
            common = 0
            for (opened, _), name in zip(self._opened, names, strict=False):
                if opened != name:
                    break
                common += 1
            self._close_below(common)
            for name in names[common:]:
                if name == "..":
                    raise Unreadable("a path that leads out of the tree")
                above = self._opened[-1][1] if self._opened else self._root
                self._opened.append((name, os.open(name, _FOLDER_FLAGS, dir_fd=above)))
            self._last = path
        return self._opened[-1][1] if self._opened else self._root

    def _close_below(self, count: int) -> None:
        """Close all open folders but the first `count`."""
        self._last = None
        while len(self._opened) > count:
            os.close(self._opened.pop()[1])


class _DirectoryFile(OpenFile, Closing):
    """A file that is closed behind a `with` statement."""

    def __init__(self, descriptor: int, size: int) -> None:
        super().__init__(descriptor, size)
        # Headers are at both ends of a file: read-ahead would fetch 128 KiB around each.
        if size > _READ_AHEAD and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def close(self) -> None:
        """See `Closing.close`."""
        os.close(self._descriptor)
