"""A single file for `inspect`: a library, an archive of objects, or device code."""

from __future__ import annotations

import re
from pathlib import Path

from buildmatrix.sources.model import Argument, Source

#: Names of libraries and device code: no image has such a name.
_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?$|\.(cubin|fatbin|ptx|bc|hsaco|spv|kpack|a|o)$")


class SingleBinary(Source):
    """A file that holds code: it is described, and is no tree with facts."""

    prefix = ""
    commands = frozenset({"inspect"})
    judged_by = "inspect"

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        path = argument.path
        is_meant = _LIBRARY.search(path.name) and not path.is_dir()
        return cls(argument.text) if is_meant or path.is_file() else None

    @property
    def single_file(self) -> Path:
        """See `Source.single_file`."""
        return Path(self.name)
