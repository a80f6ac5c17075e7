"""`wheel:PATH-or-URL`: one wheel, local or on a server, as a file or as a requirement."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename
from packaging.version import InvalidVersion

from buildmatrix.base.errors import UsageError
from buildmatrix.base.parsing import parse_wheel_name, split_variant
from buildmatrix.base.urls import path_in, remember
from buildmatrix.sources.model import (
    READING,
    RESOLVING,
    Argument,
    Declared,
    Facts,
    Installed,
    ReadingOptions,
    Source,
)

if TYPE_CHECKING:
    from buildmatrix.engines.model import OpenTree
    from buildmatrix.facts.inventory.model import Inventory
    from buildmatrix.locks.requirement_lines import RequirementSet
    from buildmatrix.locks.selection import LockSelection


def is_wheel_label(text: str) -> bool:
    """Return True if a report's label is that of one wheel."""
    return text.startswith(f"{WheelFile.prefix}:")


class WheelFile(Installed):
    """A local wheel."""

    prefix = "wheel"
    commands = READING | RESOLVING
    form = "wheel"

    @classmethod
    def named(cls, name: str, argument: Argument) -> Source:
        """See `Source.named`: `audit` resolves what the wheel requires, and `scan` reads it."""
        if argument.command == "scan":
            return WheelOnServer(name) if "://" in name else cls(name)
        if argument.command != "audit" and "://" not in name:
            return cls(name)
        path = path_in(name) if "://" in name else name
        if not path.endswith(".whl"):
            raise UsageError(f"{argument.text} is not a wheel: wheel names end in .whl")
        # uv takes a scheme in capitals for the begin of a path.
        scheme, mark, rest = name.partition("://")
        return DeclaredWheel(scheme.lower() + mark + rest if mark else name, argument.text)

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        text, path = argument.text, argument.path
        name = path_in(text) if "://" in text else text
        if not name.endswith(".whl") or path.is_dir():
            return None
        if "://" not in text and argument.command != "audit" and not path.is_file():
            raise UsageError(f"there is no {text}")
        return cls.named(text, argument)

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`."""
        from buildmatrix.facts.inventory.collect import collect
        from buildmatrix.facts.trees.wheel import WheelTree
        from buildmatrix.images.store.facts import file_digest

        path, cache = Path(self.name), options.cache()

        def scan() -> Inventory:
            with WheelTree(path) as tree:
                return collect(tree)

        inventory = scan() if cache is None else cache.inventory(f"wheel {file_digest(path)}", scan)
        return Facts(str(self), inventory)

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        from buildmatrix.facts.trees.wheel import WheelTree

        return lambda: WheelTree(Path(self.name))

    @property
    def single_file(self) -> Path:
        """See `Source.single_file`."""
        return Path(self.name)

    @property
    def is_wheel(self) -> bool:
        """See `Source.is_wheel`."""
        return True


class WheelOnServer(Installed):
    """A wheel on a server."""

    prefix = "wheel"
    form = "wheel"

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`. Raises `UsageError` for an address that names no wheel."""
        url, _, fragment = self.name.partition("#")
        filename = posixpath.basename(path_in(url))
        if not filename.endswith(".whl"):
            raise UsageError(f"{self} is not a wheel: wheel names end in .whl")
        # The form that pip and uv append to an address.
        claim = re.search(r"(?:^|&)sha256=([0-9A-Fa-f]{64})(?:&|$)", fragment)
        remember(url)
        from buildmatrix.locks.model import Wheel

        wheel = Wheel(filename, url, claim[1].lower() if claim is not None else "")
        return Facts(str(self), options.index().reader.read(wheel, "whole").inventory)


@dataclass(frozen=True)
class DeclaredWheel(Declared):
    """A wheel to install, with its requirements."""

    prefix = "wheel"

    @classmethod
    def named(cls, name: str, argument: Argument) -> Source:
        """See `Source.named`."""
        return WheelFile.named(name, argument)

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        from buildmatrix.locks.requirement_lines import add_line

        place = str(ask.path.absolute()) if self.is_file else self.name
        add_line(wanted, place, str(self), 0, root)

    def pythons(self, root: Path) -> str:
        """See `Declared.pythons`: as the tags of its name say."""
        filename = posixpath.basename(path_in(self.name))
        try:
            tags = parse_wheel_name(split_variant(filename)[0])[3]
        except (InvalidWheelFilename, InvalidVersion):
            return ""
        for tag in sorted(tags, key=str):
            if match := re.fullmatch(r"cp3(\d+)", tag.interpreter):
                return f">=3.{match[1]}" if tag.abi in ("abi3", "none") else f"==3.{match[1]}.*"
        return ""
