"""The account that a container of an image runs as."""

from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.errors import UndecidedError
from buildmatrix.trees.base import Tree

#: Maximum bytes of `/etc/passwd` and of `/etc/group`.
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
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
