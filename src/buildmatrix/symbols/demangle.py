"""Mangled names of C++ and Rust, as people write them; by LIEF in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from buildmatrix.child import bare_environment

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
        worker = subprocess.run(
            command,
            env=bare_environment(),
            check=True,
            input=json.dumps(mangled),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        answer = json.loads(worker.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return tuple(names)
    if not isinstance(answer, list) or len(answer) != len(mangled):
        return tuple(names)
    readable = dict(zip(mangled, map(str, answer), strict=True))
    return tuple(readable.get(name, name) for name in names)
