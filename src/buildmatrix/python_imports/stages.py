"""Python files of a wheel that its import runs, found in the course of reading it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from buildmatrix.python_imports.program import Program
from buildmatrix.python_imports.source import (
    ANY_MODULE,
    ANY_SUBMODULE,
    Outline,
    find_run_imports,
)


class ImportStages:
    """The Python files of a wheel, of which only `paths` are known."""

    def __init__(self, paths: Iterable[str]) -> None:
        nothing = Outline()
        self._program = Program("", dict.fromkeys(paths, nothing), (), lambda _: None, 0)
        #: Imported name to the files that its import runs.
        self._runs: dict[str, tuple[str, ...]] = {}

    def first_files(self) -> Iterator[str]:
        """Yield the files that users import first, including those that an installer moves."""
        program = self._program
        for name in program.roots():
            yield program.modules[name]
        for path in program.outlines:
            if path.partition("/")[0].endswith(".data"):
                yield path

    def files_after(self, path: str, source: bytes) -> Iterator[str]:
        """Yield the files that an import of the file at `path`, with these bytes, runs in turn."""
        program = self._program
        name = program.names[path]
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
        for written in find_run_imports(source):
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
                    for inner in program.list_submodules(package)
                    if (module := f"{package}.{inner}") in program.modules
                )
                continue
            imported = program.resolve_name(written, package)
            if imported not in self._runs:
                self._runs[imported] = tuple(self._find_run_files(imported))
            yield from self._runs[imported]

    def _find_run_files(self, imported: str) -> Iterator[str]:
        """Yield the files of a module and of its packages."""
        program = self._program
        owner = program.find_owner(imported)
        module = owner[0] if owner is not None else ""
        while module:
            if module in program.modules:
                yield program.modules[module]
            module = module.rpartition(".")[0]
