"""Lookup of paths as a process with the tree as its root would: links stay inside."""

from __future__ import annotations

from collections.abc import Container, Mapping

#: Links followed per lookup, as in the kernel (path_resolution(7)).
MOST_LINKS = 40
#: Folders with a remembered real path; hostile files can ask for any number.
MOST_REMEMBERED = 100_000


class LinkedPaths:
    """The symbolic links of a tree over its files.

    Folders need not be known: a component that is not a link counts as a folder, and `files`
    decides in the end if the result exists.
    """

    def __init__(self, files: Container[str], links: Mapping[str, str]) -> None:
        self._files = files
        self._links = links
        self._folders: dict[str, str | None] = {}

    def file(self, path: str) -> str | None:
        """Return the file that `path` leads to, or None. Absolute paths start at the root."""
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
        """Resolve `path` without links, `.` and `..`; the root is empty; None for a loop."""
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
                # The parent of the root is the root.
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
