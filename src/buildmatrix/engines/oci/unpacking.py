"""The files of an image, laid out on disk for as long as a command runs in them.

What layers say is hostile. Their entries are merged in memory first (`trees.archive_layers`), so
that the folder of every path is a folder of the tree. Folders and files are made in an empty
folder, and symbolic links last: no path that is opened here ever leads through one.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from buildmatrix.engines.disk import writing
from buildmatrix.engines.oci.identity import Identity
from buildmatrix.errors import UndecidedError
from buildmatrix.trees.archive import CHUNK
from buildmatrix.trees.archive_layers import LayeredTree
from buildmatrix.trees.base import reason
from buildmatrix.trees.tar import Attributes

#: Errors that an image asks for: what cannot be read (`Unreadable`), and names that no disk takes.
_OF_THE_IMAGE = {None, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}
#: Folders that a sandbox mounts something on, with their rights: runc gives those to the mount.
MOUNT_POINTS = {"proc": 0o555, "dev": 0o755, "tmp": 0o1777}


@dataclass(slots=True)
class RootFolder:
    """The files of an image, and the account that runs its commands."""

    path: Path
    account: Identity
    #: Removes the files.
    end: ExitStack
    users: int = 0


class RootFolders:
    """Root folders of images, each laid out once for what a thread runs in it.

    The last one remains until the thread lays out another, or `close`: a build runs smoke commands
    in an image, then the ladder. Sandboxes mount it read-only.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], RootFolder] = {}

    @contextmanager
    def use(self, image: str, lay_out: Callable[[], RootFolder]) -> Iterator[RootFolder]:
        """Yield the root folder of an image, which `lay_out` makes."""
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
        """Remove all that remain."""
        for thread in {thread for thread, _ in self._held}:
            self._remove(thread)

    def _remove(self, thread: int) -> None:
        for key in [key for key in self._held if key[0] == thread and not self._held[key].users]:
            self._held.pop(key).end.close()


def unpack(tree: LayeredTree, root: Path, account: Identity, *, with_owners: bool) -> None:
    """Fill the empty folder `root` with the files of `tree`, to be run by `account`.

    `with_owners` gives each file its owner, which takes root. Without it every file belongs to
    whoever runs this, and a sandbox shows it as the account's: so the file gets the rights that the
    account has as its owner, as one of its group or as another, and no more. A sandbox mounts
    `root` read-only.

    Raises `UndecidedError` for what cannot be laid out, `BuildError` when the disk is full.
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
        # Whoever runs this has to remove it again; the sandbox forbids what is written.
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
    """Make the folders that a sandbox mounts something on, where the image lacks them.

    They replace links: a mount would follow those, out of `root`. No runtime takes one for `/proc`.
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
