"""`dir:PATH`: a virtual environment, a site-packages folder or a root file system."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path

from buildmatrix.engines.exports import OpenTree
from buildmatrix.errors import UsageError
from buildmatrix.sources.environments import environment_of, environment_tree
from buildmatrix.sources.model import Argument, Facts, Installed, ReadingOptions, Source
from buildmatrix.trees.base import Tree

#: Names of interpreters.
_INTERPRETER = re.compile(r"python[0-9.]*t?")


class Directory(Installed):
    """A folder; the interpreter of a virtual environment stands for that."""

    prefix = "dir"

    @classmethod
    def named(cls, name: str, argument: Argument) -> Source:
        """See `Source.named`."""
        return cls(str(environment_of(Path(name)) or name))

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        path = argument.path
        if path.is_dir():
            is_image = (path / "oci-layout").is_file() and environment_of(path) is None
            return None if is_image else cls.named(argument.text, argument)
        if argument.command == "inspect":
            return None  # An interpreter is a file as well.
        if environment_of(path) is not None:
            return cls.named(argument.text, argument)
        if path.is_file() and _INTERPRETER.fullmatch(path.name):
            raise UsageError(
                f"{argument.text} belongs to no virtual environment, and nothing is run to ask "
                "where its packages are; name the folder that they lie in, or /"
            )
        return None

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`."""
        from buildmatrix.inventory.collect import collect

        path, cache = Path(self.name), options.cache()
        with self._tree() as tree, options.counting(str(self), "files") as watch:
            if cache is None:
                inventory = collect(tree, watch=watch)
            else:
                inventory = cache.folder(path, tree, watch)
        return Facts(str(self), inventory)

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        return self._tree

    def _tree(self) -> AbstractContextManager[Tree]:
        from buildmatrix.trees.directory import DirectoryTree

        path = Path(self.name)
        return DirectoryTree(path) if environment_of(path) is None else environment_tree(path)
