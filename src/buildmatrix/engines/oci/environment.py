"""An empty virtual environment for a Python of another file system, like `uv venv`.

uv creates one for the Python that runs this code. Then its location and its Python are replaced.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from buildmatrix.child import bare_environment
from buildmatrix.engines.oci.base_files import BasePython
from buildmatrix.engines.oci.installation import ENVIRONMENT, InstalledFile, site_packages
from buildmatrix.errors import ComponentError
from buildmatrix.oci.layers import LayerEntry
from buildmatrix.scratch import scratch

#: Timeout in seconds; uv takes 30 ms.
_PATIENCE: Final = 60.0
#: Lock file of `uv pip sync`.
_LOCK: Final = ".lock"


def new_environment(python: BasePython) -> dict[str, InstalledFile]:
    """Return path → file of the layer, for the environment of `python`.

    Raises ComponentError if uv fails.
    """
    minor = ".".join(python.version.split(".")[:2])
    files, version = _written()
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    configuration = {
        "home": python.home,
        "implementation": "CPython",
        "uv": version,
        "version_info": python.version,
        "include-system-site-packages": "false",
    }
    lines = "".join(f"{key} = {value}\n" for key, value in configuration.items())
    made = [
        _file("pyvenv.cfg", lines.encode()),
        _file(_LOCK, b"", 0o666),
        _link("bin/python", python.executable),
        _link("bin/python3", "python"),
        _link(f"bin/python{minor}", "python"),
        _link("lib64", "lib"),
        InstalledFile(LayerEntry(site_packages(minor), "folder", 0o755)),
    ]
    for name, data, mode in files:
        made.append(_file(name, data.replace(here.encode(), f"python{minor}".encode()), mode))
    return {file.entry.path: file for file in made}


@cache
def _written() -> tuple[tuple[tuple[str, bytes, int], ...], str]:
    """Return files of a new environment (path, bytes, mode), and the version of uv."""
    import uv

    with scratch("environment") as folder:
        place = folder / "venv"
        command = [uv.find_uv_bin(), "venv", "--quiet", "--no-config", "--offline"]
        command += ["--no-project", "--python", sys.executable, str(place)]
        try:
            subprocess.run(
                command,
                env={**bare_environment(), "UV_CACHE_DIR": str(folder / "cache")},
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=_PATIENCE,
                umask=0o022,
            )
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", b"") or b""
            why = output.decode("utf-8", "replace").strip() or str(error)
            raise ComponentError(f"uv cannot make a virtual environment: {why}") from error
        files = []
        for path in sorted(place.rglob("*")):
            name = path.relative_to(place).as_posix()
            if path.is_symlink() or not path.is_file() or name == "pyvenv.cfg":
                continue
            data = path.read_bytes().replace(os.fsencode(place), f"/{ENVIRONMENT}".encode())
            files.append((name, data, path.stat().st_mode & 0o777))
        version = _setting(place / "pyvenv.cfg", "uv")
    return tuple(files), version


def _setting(path: Path, key: str) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == key:
            return value.strip()
    return ""


def _file(name: str, data: bytes, mode: int = 0o644) -> InstalledFile:
    entry = LayerEntry(f"{ENVIRONMENT}/{name}", "file", mode, len(data))
    return InstalledFile(entry, lambda: (data,))


def _link(name: str, target: str) -> InstalledFile:
    return InstalledFile(LayerEntry(f"{ENVIRONMENT}/{name}", "symlink", 0o777, target=target))
