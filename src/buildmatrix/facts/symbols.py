"""Imported symbols and demangled names, read by LIEF in a process of its own.

The worker: `python -m buildmatrix.facts.symbols FILE` prints the imported symbols of an ELF file as
JSON, and without FILE the readable names for a JSON list of mangled ones. LIEF is native code and
parses hostile bytes: a crash ends only the worker.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from buildmatrix.base.child import bare_environment
from buildmatrix.base.threads import prepare_type

# Limits of a worker


def limit_process(*, memory: int, seconds: int, file_size: int | None = None) -> None:
    """Bound this process: bytes of address space, seconds of processor time, bytes of a file.

    It writes no core dump. A stricter limit that the system sets already stays.
    """
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: file_size,
    }
    for kind, limit in limits.items():
        if limit is not None:
            hard = resource.getrlimit(kind)[1]
            bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(kind, (bound, bound))


# Imported symbols


#: Seconds for one file; libtorch_cpu takes 2.
PATIENCE = 60.0
#: Characters of a message of LIEF to show.
_SHOWN = 200


class SymbolsUnread(Exception):
    """LIEF failed; the text is the reason, one sentence."""


@dataclass(frozen=True, slots=True)
class _WorkerAnswer:
    imports: tuple[tuple[str | None, tuple[str, ...]], ...]


def read_imports(path: Path, patience: float = PATIENCE) -> tuple[Imports, ...]:
    """Symbols that the ELF file `path` imports, by library. Raises `SymbolsUnread`."""
    command = [sys.executable, "-I", "-m", "buildmatrix.facts.symbols", os.fspath(path)]
    # Answers go into files, whose size the worker's limits bound; a pipe has no such bound.
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as trouble:
        try:
            status = subprocess.run(
                command,
                env=bare_environment(),
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=trouble,
                timeout=patience,
            ).returncode
        except subprocess.TimeoutExpired:
            raise SymbolsUnread(f"LIEF was stopped after {patience:g} s") from None
        except OSError as error:
            raise SymbolsUnread(f"LIEF cannot be started: {error.strerror or error}") from error
        if status < 0:
            raise SymbolsUnread(f"LIEF crashed on it or ran out of memory (signal {-status})")
        if status:
            trouble.seek(0)
            lines = trouble.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
            raise SymbolsUnread(f"LIEF failed: {(lines or ['no reason given'])[-1][:_SHOWN]}")
        answer.seek(0)
        data = answer.read()
    try:
        rows = msgspec.json.decode(data, type=prepare_type(_WorkerAnswer)).imports
    except msgspec.DecodeError as error:
        raise SymbolsUnread(f"LIEF gave no answer: {error}") from error
    return tuple(Imports(library, symbols) for library, symbols in rows)


@dataclass(frozen=True, slots=True)
class Imports:
    """Symbols that a binary takes from one library."""

    #: NEEDED entry whose symbol versions the symbols ask for; None for symbols without a version,
    #: which ELF does not bind to a library.
    library: str | None
    #: Demangled where they are mangled names of C++ or Rust, sorted.
    symbols: tuple[str, ...]


# Mangled names


#: Seconds for all names together; LIEF takes most of one to start.
_NAMES_PATIENCE = 20.0
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
        worker = subprocess.run(
            command,
            env=bare_environment(),
            check=True,
            input=json.dumps(mangled),
            capture_output=True,
            text=True,
            timeout=_NAMES_PATIENCE,
        )
        answer = json.loads(worker.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return tuple(names)
    if not isinstance(answer, list) or len(answer) != len(mangled):
        return tuple(names)
    readable = dict(zip(mangled, map(str, answer), strict=True))
    return tuple(readable.get(name, name) for name in names)


# Worker with FILE. The parent sets the time limit


#: Bytes of address space. LIEF reads the whole file; 434 MB of libtorch take 0.7 GB.
_IMPORTS_MEMORY = 6 << 30
#: Bytes of the answer, and of any other file: the 120,000 symbols of libtorch_cpu have 20 MB.
_LARGEST_ANSWER = 256 << 20
#: Seconds of processor time, should the parent be gone.
_IMPORTS_SECONDS = 120
#: SHN_UNDEF: the symbol is defined elsewhere.
_UNDEFINED = 0


def _print_imports(path: str) -> None:
    """Print `{"imports": [[library or null, [symbol, ...]], ...]}`."""
    limit_process(memory=_IMPORTS_MEMORY, seconds=_IMPORTS_SECONDS, file_size=_LARGEST_ANSWER)
    import lief

    lief.logging.disable()
    options = lief.ELF.ParserConfig()
    options.parse_relocations = False
    options.parse_symtab_symbols = False
    options.parse_notes = False
    options.parse_overlay = False
    binary = lief.ELF.parse(path, options)
    if binary is None:
        sys.exit("LIEF takes it for no ELF file")
    # vna_other: the number that symbols have in the version table (LSB 5.0, 10.7).
    owners = {
        version.other: need.name
        for need in binary.symbols_version_requirement
        for version in need.get_auxiliary_symbols()
    }
    symbols: dict[str | None, set[str]] = {}
    for symbol in binary.dynamic_symbols:
        # Not `symbol.imported`, which leaves out symbols without a type: most are.
        if symbol.shndx != _UNDEFINED or not symbol.name:
            continue
        version = symbol.symbol_version
        library = owners.get(version.value & 0x7FFF) if version is not None else None
        symbols.setdefault(library, set()).add(str(symbol.demangled_name or symbol.name))
    rows = [
        [library, sorted(symbols[library])]
        for library in sorted(symbols, key=lambda name: name or "~")
    ]
    json.dump({"imports": rows}, sys.stdout)


# Worker without FILE: JSON list in, JSON list of the same length out


#: Bytes of address space, and seconds of processor time.
_NAMES_MEMORY, _NAMES_SECONDS = 2 << 30, 20


def _print_demangled() -> None:
    """Demangle the names on standard input; other names come back unchanged."""
    limit_process(memory=_NAMES_MEMORY, seconds=_NAMES_SECONDS)
    import lief

    lief.logging.disable()
    names = []
    for name in json.load(sys.stdin):
        symbol = lief.ELF.Symbol()
        symbol.name = name
        names.append(str(symbol.demangled_name) or name)
    json.dump(names, sys.stdout)


if __name__ == "__main__":
    if sys.argv[1:]:
        _print_imports(sys.argv[1])
    else:
        _print_demangled()
