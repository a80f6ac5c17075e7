"""Imported symbols with readable names, which LIEF demangles in a process of its own.

The worker: `python -m buildmatrix.facts.symbols` prints the readable names for a JSON list of
mangled ones. LIEF is native code and parses hostile bytes: a crash ends only the worker.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from buildmatrix.base.child import bare_environment, run
from buildmatrix.facts.elf.headers import Malformed
from buildmatrix.facts.elf.symbols import read_symbols
from buildmatrix.facts.trees.archive import OpenFile
from buildmatrix.facts.trees.base import reason


@dataclass(frozen=True, slots=True)
class Imports:
    """Symbols that a binary takes from one library."""

    #: NEEDED entry whose symbol versions the symbols ask for; None for symbols without a version,
    #: which ELF does not bind to a library.
    library: str | None
    #: Demangled where they are mangled names of C++ or Rust, sorted.
    symbols: tuple[str, ...]


def read_imports(path: Path) -> tuple[tuple[Imports, ...], tuple[str, ...]]:
    """Return the symbols that the ELF file `path` imports, by library, and what was not read."""
    try:
        with path.open("rb") as file:
            source = OpenFile(file.fileno())
            symbols = read_symbols(source, source.size, needs_only=True)
    except OSError as error:
        return (), (reason(error),)
    except Malformed as error:
        return (), (error.reason,)
    if symbols is None:
        return (), ("it is not an ELF file any more",)
    readable = demangle_symbols([symbol.name for symbol in symbols.undefined])
    names: dict[str | None, set[str]] = {}
    for symbol, name in zip(symbols.undefined, readable, strict=True):
        names.setdefault(symbol.library, set()).add(name)
    libraries = sorted(names, key=lambda library: library or "~")
    imports = tuple(Imports(library, tuple(sorted(names[library]))) for library in libraries)
    return imports, symbols.unread


# Mangled names


#: Seconds for all names together; LIEF takes most of one to start. Bytes of memory.
_SECONDS, _MEMORY = 20, 2 << 30
_MANGLED = ("_Z", "_R")


def demangle_symbols(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names`, demangled where LIEF can; the others unchanged.

    Starts no process if no name is mangled.
    """
    mangled = [name for name in dict.fromkeys(names) if name.startswith(_MANGLED)]
    if not mangled:
        return tuple(names)
    command = [sys.executable, "-I", "-m", "buildmatrix.facts.symbols"]
    try:
        worker = run(
            command,
            Path("/"),
            bare_environment(),
            seconds=_SECONDS,
            memory=_MEMORY,
            input=json.dumps(mangled),
        )
        answer = json.loads(worker.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return tuple(names)
    if not isinstance(answer, list) or len(answer) != len(mangled):
        return tuple(names)
    readable = dict(zip(mangled, map(str, answer), strict=True))
    return tuple(readable.get(name, name) for name in names)


# Worker: JSON list in, JSON list of the same length out


def _print_demangled() -> None:
    """Demangle the names on standard input; other names come back unchanged."""
    signal.alarm(_SECONDS)  # should the parent be gone
    import lief

    lief.logging.disable()
    names = []
    for name in json.load(sys.stdin):
        symbol = lief.ELF.Symbol()
        symbol.name = name
        names.append(str(symbol.demangled_name) or name)
    json.dump(names, sys.stdout)


if __name__ == "__main__":
    _print_demangled()
