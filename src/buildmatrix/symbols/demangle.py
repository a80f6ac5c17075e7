"""Mangled names of C++ and Rust, as people write them; by LIEF in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

#: Seconds for all names together; LIEF takes most of one to start.
PATIENCE = 20.0
_MANGLED = ("_Z", "_R")


def demangled(names: Sequence[str]) -> tuple[str, ...]:
    """`names`, the mangled ones readable; as they are where that cannot be done.

    Nothing is started where none is mangled.
    """
    mangled = [name for name in dict.fromkeys(names) if name.startswith(_MANGLED)]
    if not mangled:
        return tuple(names)
    command = [sys.executable, "-I", "-m", "buildmatrix.symbols.demangle_worker"]
    try:
        done = subprocess.run(
            command,
            check=True,
            input=json.dumps(mangled),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        told = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return tuple(names)
    if not isinstance(told, list) or len(told) != len(mangled):
        return tuple(names)
    known = dict(zip(mangled, map(str, told), strict=True))
    return tuple(known.get(name, name) for name in names)
