"""Paths of a tree, looked up as a process whose root is the tree would: links stay inside."""

from __future__ import annotations

from collections.abc import Container, Mapping

#: Links that one lookup may pass, as in the kernel (path_resolution(7)).
MOST_LINKS = 40
#: Folders whose real path is remembered; files that lie can ask for any number.
MOST_REMEMBERED = 100_000


class LinkedPaths:
    """The symbolic links of a tree over its files.

    Folders need not be known: a component that is no link is taken for a folder, and whether the
    result exists is decided by `files` at the end.
    """

    def __init__(self, files: Container[str], links: Mapping[str, str]) -> None:
        self._files = files
        self._links = links
        self._folders: dict[str, str | None] = {}

    def file(self, path: str) -> str | None:
        """The file that `path` leads to, or None. Absolute paths begin at the tree's root."""
        folder, _, name = path.rpartition("/")
        resolved = self.folder(folder)
        if resolved is None:
            return None
        inside = f"{resolved}/{name}" if resolved else name
        if inside in self._links:
            followed = self._follow(inside)
            return followed if followed is not None and followed in self._files else None
        return inside if inside in self._files else None

    def folder(self, path: str) -> str | None:
        """`path` without links, `.` and `..`; the root is the empty string; None for a loop."""
        if path in self._folders:
            return self._folders[path]
        resolved = self._follow(path)
        if len(self._folders) < MOST_REMEMBERED:
            self._folders[path] = resolved
        return resolved

    def _follow(self, path: str) -> str | None:
        components: list[str] = []
        ahead = path.split("/")[::-1]
        passed = 0
        while ahead:
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                # Above the root there is the root.
                del components[-1:]
                continue
            components.append(name)
            target = self._links.get("/".join(components))
            if target is None:
                continue
            passed += 1
            if passed > MOST_LINKS:
                return None
            if target.startswith("/"):
                components.clear()
            else:
                components.pop()
            ahead.extend(target.split("/")[::-1])
        return "/".join(components)
