"""Libraries that Python files load by their path, before a binary needs them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from buildmatrix.inventory.model import PythonLoad
from buildmatrix.loader.process import file_name


class Preloads:
    """Libraries that packages load by their paths before an extension module needs them."""

    def __init__(self, loads: Iterable[PythonLoad]) -> None:
        self._patterns: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        for load in loads:
            for name in load.names if load.owner and load.call in ("CDLL", "LoadLibrary") else ():
                # `*.so` is any library; `lib*.so.*[0-9]` is no name either.
                if re.search(r"\w{3}", file_name(name).removeprefix("lib").partition(".so")[0]):
                    pattern = re.compile(fnmatch.translate("*/" + name.lstrip("*/")))
                    place = f"{load.path}:{load.line}"
                    self._patterns.setdefault(load.owner or "", []).append((pattern, place))

    def place(self, owner: str | None, paths: Iterable[str]) -> str | None:
        """Where `owner` loads one of `paths`, or None."""
        for path in paths:
            for pattern, place in self._patterns.get(owner or "", ()):
                if pattern.match(f"/{path}"):
                    return place
        return None
