"""Put the data files of the catalogue into the wheel once more, in a form that is read faster.

A build hook of hatchling (https://hatch.pypa.io/latest/plugins/build-hook/custom/). Checkouts and
editable installations have no such file, and read the data files themselves.
"""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileCatalogue(BuildHookInterface):
    """Writes `catalogue/data.msgpack`: name → content of each data file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to a wheel."""
        if version == "editable":
            return
        folder = Path(self.root, "src/buildmatrix/catalogue/data")
        content = {path.name: tomllib.loads(path.read_text()) for path in folder.glob("*.toml")}
        self._made = tempfile.TemporaryDirectory()
        file = Path(self._made.name, "data.msgpack")
        file.write_bytes(msgspec.msgpack.encode(dict(sorted(content.items()))))
        build_data["force_include"][str(file)] = "buildmatrix/catalogue/data.msgpack"

    def finalize(self, version: str, *_: object) -> None:
        """Remove it from the disk."""
        if version != "editable":
            self._made.cleanup()
