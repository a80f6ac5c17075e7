"""Temporary root folders with the files of an image, and the account that its commands run as."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from buildmatrix.base.errors import UndecidedError
from buildmatrix.engines.process import writing
from buildmatrix.facts.trees.archive import CHUNK
from buildmatrix.facts.trees.archive_layers import LayeredTree
from buildmatrix.facts.trees.base import Tree, reason
from buildmatrix.facts.trees.tar import Attributes

# Accounts


#: Maximum bytes of `/etc/passwd` and of `/etc/group`.
_LARGEST = 1 << 20


class Identity(Struct, frozen=True):
    """IDs of a user, its group, and its supplementary groups."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    def may(self, mode: int, uid: int, gid: int) -> int:
        """Return its permissions on a file of `uid` and `gid`: three bits of `mode` (inode(7))."""
        if self.uid == 0:
            return 7 if mode & 0o111 else 6
        if self.uid == uid:
            return mode >> 6 & 7
        return mode >> 3 & 7 if gid in (self.gid, *self.groups) else mode & 7


def identity(user: str, tree: Tree) -> Identity:
    """Resolve `USER` of an image's configuration by its passwd(5) and group(5).

    Like runc (moby/sys, `user.GetExecUser`): `NAME` or a number, then `:GROUP` or nothing. A number
    is never a name. Raises `UndecidedError` for a name that is not in these files.
    """
    name, colon, group = user.partition(":")
    people = _table(tree, "etc/passwd", 4)
    groups = _table(tree, "etc/group", 3)
    person = next((row for row in people if row[2 if name.isdecimal() else 0] == name), None)
    if person is not None:
        uid, gid = int(person[2]), int(person[3]) if person[3].isdecimal() else 0
    elif name.isdecimal() or not name:
        uid, gid = int(name or 0), 0
    else:
        raise UndecidedError(f"the image runs as {name!r}, and its /etc/passwd has no such user")
    if not colon:
        further = (
            int(row[2])
            for row in groups
            if person is not None and len(row) > 3 and person[0] in row[3].split(",")
        )
        return Identity(uid, gid, tuple(sorted({*further} - {gid})))
    row = next((row for row in groups if row[2 if group.isdecimal() else 0] == group), None)
    if row is None and not group.isdecimal():
        raise UndecidedError(f"the image runs as group {group!r}, which its /etc/group lacks")
    return Identity(uid, int(row[2] if row is not None else group))


def _table(tree: Tree, path: str, columns: int) -> list[list[str]]:
    """Return rows of a colon-separated file whose third column is a number; none if missing."""
    try:
        text = tree.read_bytes(path, _LARGEST).decode("utf-8", "replace")
    except OSError:
        return []
    rows = (line.split(":") for line in text.splitlines() if not line.startswith("#"))
    return [row for row in rows if len(row) >= columns and row[2].isdecimal()]


# Root folders. Layers are untrusted. Their entries are merged in memory first
# (`facts.trees.archive_layers`), so that every parent is a folder of the tree. Folders and files
# are created in an empty folder, and symbolic links last: no opened path ever passes through a
# link.


#: Errors caused by an image: unreadable content (`Unreadable`), and names that are invalid on disk.
_OF_THE_IMAGE = {None, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}
#: Mount points of sandboxes, with their modes, which runc applies to the mounts.
MOUNT_POINTS = {"proc": 0o555, "dev": 0o755, "tmp": 0o1777}


class RootFolder(Struct):
    """The files of an image, and the account that runs its commands."""

    path: Path
    account: Identity
    #: Removes the files.
    end: ExitStack
    users: int = 0


class RootFolders:
    """Root folders of images, reused for consecutive commands of a thread.

    The last one is kept until the thread lays out another, or `close`: a build runs smoke commands
    in an image, then the ladder. Sandboxes mount it read-only.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], RootFolder] = {}

    @contextmanager
    def use(self, image: str, lay_out: Callable[[], RootFolder]) -> Iterator[RootFolder]:
        """Yield the root folder of an image; create it by `lay_out` if missing."""
        key = (threading.get_ident(), image)
        if key not in self._held:
            self._remove(key[0])
            self._held[key] = lay_out()
        folder = self._held[key]
        folder.users += 1
        try:
            yield folder
        finally:
            folder.users -= 1

    def close(self) -> None:
        """Remove all folders."""
        for thread in {thread for thread, _ in self._held}:
            self._remove(thread)

    def _remove(self, thread: int) -> None:
        for key in [key for key in self._held if key[0] == thread and not self._held[key].users]:
            self._held.pop(key).end.close()


def unpack(tree: LayeredTree, root: Path, account: Identity, *, with_owners: bool) -> None:
    """Fill the empty folder `root` with the files of `tree`, for commands of `account`.

    `with_owners` sets the owner of each file, which requires root. Without it, all files belong to
    the current user, and appear to belong to the account in a sandbox: so each file's mode is
    reduced to the account's permissions as its owner, in its group or as another. A sandbox mounts
    `root` read-only.

    Raises `UndecidedError` for an invalid tree, `BuildError` if the disk is full.
    """
    folders: list[tuple[Path, Attributes]] = []
    links: list[tuple[Path, str, Attributes]] = []
    names: dict[int, Path] = {}

    def settle(path: Path, attributes: Attributes) -> None:
        if with_owners:
            os.chown(path, attributes.uid, attributes.gid, follow_symlinks=False)
            path.chmod(attributes.mode)
            return
        rights = account.may(attributes.mode, attributes.uid, attributes.gid)
        # The current user must be able to remove it; the sandbox forbids writing.
        path.chmod(rights * 0o111 | (0o200 if path.is_dir() else 0))

    with writing(root):
        try:
            for entry in tree.entries():
                path = root / entry.path
                if entry.kind == "folder":
                    if entry.path:
                        path.mkdir(0o700)
                    folders.append((path, entry.attributes))
                elif entry.kind == "symlink":
                    links.append((path, entry.target, entry.attributes))
                elif entry.number in names:
                    path.hardlink_to(names[entry.number])
                else:
                    names[entry.number] = path
                    _write(tree, entry.path, path)
                    settle(path, entry.attributes)
            for path, target, attributes in links:
                path.symlink_to(target)
                if with_owners:
                    os.chown(path, attributes.uid, attributes.gid, follow_symlinks=False)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in _OF_THE_IMAGE:
                raise
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise UndecidedError(f"the image cannot be laid out to be run: {why}") from error
        for path, attributes in reversed(folders):
            settle(path, attributes)
        add_mount_points(root)


def add_mount_points(root: Path) -> None:
    """Create the mount points that the image lacks.

    They replace links, which a mount would follow out of `root`. Runtimes refuse a link at `/proc`.
    """
    for name, mode in MOUNT_POINTS.items():
        path = root / name
        if path.is_symlink() and name != "proc":
            path.unlink()
        if not os.path.lexists(path):
            path.mkdir()
        if path.is_dir() and not path.is_symlink():
            path.chmod(mode)


def _write(tree: LayeredTree, name: str, path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file, tree.open(name) as source:
        offset = 0
        while chunk := source.read(offset, CHUNK):
            file.write(chunk)
            offset += len(chunk)
