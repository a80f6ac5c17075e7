"""Which Python files of a wheel its import runs, found while they are read one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from buildmatrix.python_imports.program import Program
from buildmatrix.python_imports.source import (
    ANY_MODULE,
    ANY_SUBMODULE,
    Outline,
    imported_at_once,
)


class Stages:
    """The Python files of a wheel, of which `paths` are known and nothing else."""

    def __init__(self, paths: Iterable[str]) -> None:
        nothing = Outline()
        self._program = Program("", dict.fromkeys(paths, nothing), (), lambda _: None, 0)
        #: Name of what is imported -> files that this runs.
        self._runs: dict[str, tuple[str, ...]] = {}

    def first(self) -> Iterator[str]:
        """What users import first; what an installer moves elsewhere counts as that."""
        program = self._program
        for name in program.roots():
            yield program.modules[name]
        for path in program.outlines:
            if path.partition("/")[0].endswith(".data"):
                yield path

    def after(self, path: str, source: bytes) -> Iterator[str]:
        """What an import of the file at `path`, which has these bytes, runs in turn."""
        program = self._program
        name = program.names[path]
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
        for written in imported_at_once(source):
            if written == ANY_MODULE:
                yield from (
                    other
                    for module, other in program.modules.items()
                    if module.startswith(f"{package}.")
                )
                continue
            if written == ANY_SUBMODULE:
                yield from (
                    program.modules[module]
                    for inner in program.submodules(package)
                    if (module := f"{package}.{inner}") in program.modules
                )
                continue
            imported = program.absolute(written, package)
            if imported not in self._runs:
                self._runs[imported] = tuple(self._run_by(imported))
            yield from self._runs[imported]

    def _run_by(self, imported: str) -> Iterator[str]:
        """The files of a module and of the packages that it is in."""
        program = self._program
        owner = program.owner_of(imported)
        module = owner[0] if owner is not None else ""
        while module:
            if module in program.modules:
                yield program.modules[module]
            module = module.rpartition(".")[0]
