"""What the generated Dockerfile relies on: how uv installs from a lock of ours."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from lock_cases import spec_of, target
from package_index import PackageIndex

from buildmatrix.base.progress import Silent
from buildmatrix.locks.model import Lock
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.locks.uv import find_uv


def install(root: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Install as the Dockerfile does: the lock under the name `pylock.toml`, into an empty venv."""
    uv = str(find_uv().path)
    (root / "pylock.toml").write_text(text)
    subprocess.run([uv, "venv", "--quiet", "venv"], cwd=root, check=True, timeout=300)
    flags = ["--preview-features", "pylock", "--allow-empty-requirements", "--require-hashes"]
    return subprocess.run(
        [uv, "pip", "sync", *flags, "pylock.toml"],
        cwd=root,
        env={**os.environ, "VIRTUAL_ENV": str(root / "venv")},
        capture_output=True,
        text=True,
        timeout=300,
    )


def lock_text(root: Path, requirements: str, index: PackageIndex) -> str:
    (root / "requirements.in").write_text(requirements)
    one = target(index={"torch": index.url("cu128")})
    locks = lock_targets(
        spec_of(root, one), [one], upgrade=False, offline=False, progress=Silent(), jobs=1
    )
    lock = locks[one.id]
    assert isinstance(lock, Lock), lock
    return lock.path.read_text()


def test_exactly_the_locked_files_are_installed(tmp_path: Path, index: PackageIndex) -> None:
    text = lock_text(tmp_path, "torch\n", index)
    index.add("pypi", "triton", "9.9")
    done = install(tmp_path, text)
    assert done.returncode == 0, done.stderr
    found = {p.name for p in tmp_path.glob("venv/lib/python*/site-packages/*.dist-info")}
    assert found == {
        "torch-2.12.0+cu128.dist-info",
        "triton-3.8.0.dist-info",
        "nvidia_cublas_cu12-12.8.dist-info",
    }


def test_a_file_with_another_hash_is_refused(tmp_path: Path, index: PackageIndex) -> None:
    text = lock_text(tmp_path, "numpy\n", index)
    changed = re.sub(r'sha256 = "[0-9a-f]{8}', 'sha256 = "00000000', text)
    assert changed != text
    done = install(tmp_path, changed)
    assert done.returncode != 0
    assert "Hash mismatch" in done.stderr
    assert not list(tmp_path.glob("venv/lib/python*/site-packages/numpy*"))


def test_a_file_without_a_hash_is_refused(tmp_path: Path, index: PackageIndex) -> None:
    text = lock_text(tmp_path, "numpy\n", index)
    done = install(tmp_path, re.sub(r", hashes = \{[^}]*\}", "", text))
    assert done.returncode != 0


def test_an_empty_lock_installs_nothing(tmp_path: Path, index: PackageIndex) -> None:
    assert install(tmp_path, lock_text(tmp_path, "", index)).returncode == 0
