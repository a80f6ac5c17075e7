"""Packages from npm that judge what we write; their locks lie beside this file."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import playwright
import pytest

#: Newer than that of many systems, on which the runner of GitLab's jobs does not begin.
NODE = Path(playwright.__file__).parent / "driver" / "node"
_KEPT = Path("~/.cache/buildmatrix/npm").expanduser()


def installed(name: str) -> Path:
    """The folder with `node_modules` of the lock in `tests/servers/NAME`; kept between runs."""
    if shutil.which("npm") is None:
        if os.environ.get("CI"):
            pytest.fail("npm is missing; scripts/setup.sh installs it")
        pytest.skip(f"npm is missing: what {name} needs comes from there")
    source = Path(__file__).parent / name
    lock = (source / "package-lock.json").read_bytes()
    folder = _KEPT / f"{name}-{hashlib.sha256(lock).hexdigest()[:16]}"
    # npm writes this file last.
    if not (folder / "node_modules" / ".package-lock.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, folder)
        subprocess.run(["npm", "ci", "--silent", "--ignore-scripts"], cwd=folder, check=True)
    return folder
