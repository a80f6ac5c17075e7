"""Wheels of the corpus: taken from the package index once, and known by their SHA-256."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from corpus_truth import TrueWheel

#: Where wheels may lie that another run brought: an index does not serve each of them for ever.
_KEPT = Path.home() / ".cache/buildmatrix/corpus"
_PYTHON_TAG = re.compile(r"(?P<implementation>[a-z]+)(?P<major>\d)(?P<minor>\d*)")


def wheel_folder() -> Path:
    """Where the wheels are kept: `$BUILDMATRIX_CACHE/corpus`, or below `~/.cache/buildmatrix`."""
    cache = os.environ.get("BUILDMATRIX_CACHE")
    return Path(cache) / "corpus" if cache else _KEPT


def fetch(wheel: TrueWheel, folder: Path) -> Path:
    """The wheel in `folder` or among those kept at home, downloaded when it is in neither.

    Raises RuntimeError when it cannot be had, or is not the one that the truth is about.
    """
    path = folder / wheel.filename
    if not path.exists() and (_KEPT / wheel.filename).exists():
        path = _KEPT / wheel.filename
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as arrived:
            _download(wheel, Path(arrived))
            got = Path(arrived) / wheel.filename
            if not got.exists():
                raise RuntimeError(f"{wheel.filename} is no longer what the index serves")
            _check(wheel, got)
            shutil.move(got, path)
    elif path.stat().st_size != wheel.size:
        raise RuntimeError(f"{path} has another size than the truth says; delete it")
    return path


def _download(wheel: TrueWheel, folder: Path) -> None:
    python, abi, platform = wheel.filename.removesuffix(".whl").split("-")[-3:]
    tag = _PYTHON_TAG.fullmatch(python.rpartition(".")[2])
    if tag is None:
        raise RuntimeError(f"{wheel.filename} has no Python tag that is known")
    # What is built for the stable ABI of an old Python may ask for a newer one in its metadata.
    minor = "11" if abi == "abi3" else tag["minor"] or "11"
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"),
        *("--disable-pip-version-check", "--only-binary=:all:", "--dest", str(folder)),
        *("--implementation", tag["implementation"]),
        *("--python-version", f"{tag['major']}.{minor}"),
        *(part for name in abi.split(".") for part in ("--abi", name)),
        *(part for name in platform.split(".") for part in ("--platform", name)),
        f"{wheel.name}=={wheel.version}",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{wheel} cannot be downloaded: {done.stderr.strip()[-500:]}")


def _check(wheel: TrueWheel, path: Path) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != wheel.sha256:
        raise RuntimeError(f"{wheel.filename} has the SHA-256 {digest}, not {wheel.sha256}")
