"""Programs in Go that answer as engines do, compiled by Go or by gccgo, which has its library."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_COMMANDS = {"go": ["go", "build"], "gccgo": ["gccgo", "-O"]}
#: For messages.
COMPILERS = "gccgo or Go"


def compile_oracle(source: Path, folder: Path) -> Path | None:
    """Return the program of a source file, compiled in `folder`; None without a compiler."""
    command = next((line for name, line in _COMMANDS.items() if shutil.which(name)), None)
    if command is None:
        return None
    program = folder / source.stem
    environment = {**os.environ, "GOCACHE": str(folder / "cache"), "GO111MODULE": "off"}
    subprocess.run([*command, "-o", program, source], check=True, env=environment)
    return program
