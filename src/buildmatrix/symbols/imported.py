"""Imported symbols of a binary, from LIEF in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from buildmatrix.child import bare_environment
from buildmatrix.threads import prepare_type

#: Seconds for one file; libtorch_cpu takes 2.
PATIENCE = 60.0
#: Characters of a message of LIEF's that are shown.
_SHOWN = 200


class SymbolsUnread(Exception):
    """LIEF did not come to its end; the text is the reason, one sentence."""


@dataclass(frozen=True, slots=True)
class _WorkerAnswer:
    imports: tuple[tuple[str | None, tuple[str, ...]], ...]


def imports(path: Path, patience: float = PATIENCE) -> tuple[Imports, ...]:
    """Symbols that the ELF file `path` imports, by library. Raises `SymbolsUnread`."""
    command = [sys.executable, "-I", "-m", "buildmatrix.symbols.lief_worker", os.fspath(path)]
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
            raise SymbolsUnread(f"LIEF was ended after {patience:g} s") from None
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
