"""A project on a loopback index, audited with the real uv: `--fix` and `--diff` are tried on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from package_index import PackageIndex, serve

from buildmatrix.base.progress import Silent
from buildmatrix.commands.audit import AuditInputs, AuditSession, judge_for
from buildmatrix.commands.options import AuditOptions
from buildmatrix.commands.workspace import Workspace
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.reading import CachingReader
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.matrix.load import load_spec

SPEC = """\
# the matrix of the demo
schema = 1

[project]
name = "demo"
version = "1.0"
image = "registry.example.com/{project}"

[defaults]
python = ["3.11"]
requirements = ["base.in"]
command = ["python"]

[backend.cuda]
runtime = "13.0"
base = "nvidia/cuda:13.0.1-base-ubuntu22.04"

[backend.cpu]  # no accelerator
runtime = "any"
base = "python:{python}-slim-bookworm"

# what follows is about rocm
[backend.rocm]
runtime = "7.2"
base = "rocm/dev-ubuntu-22.04:7.2.4"
"""


@contextmanager
def package_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PackageIndex]:
    """An index with real names, whose wheels are empty; uv's cache starts empty."""
    with serve() as served:
        for name in list(os.environ):
            if name.startswith("UV_") or name.upper().endswith("_PROXY"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("UV_DEFAULT_INDEX", served.url("pypi"))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        served.add("pypi", "numpy", "2.0")
        served.add("pypi", "xgboost", "3.4.1", "nvidia-nccl-cu13", "numpy")
        served.add("pypi", "nvidia-nccl-cu13", "2.28")
        served.add("pypi", "xgboost-cpu", "3.4.1", "numpy", modules={"xgboost": ""})
        served.add("pypi", "booster", "1.0", "xgboost>=3")
        served.add("pypi", "onnxruntime-gpu", "1.30.0", modules={"onnxruntime": ""})
        served.add("pypi", "onnxruntime", "1.30.0")
        yield served


@contextmanager
def session(root: Path, *sources: str, **more: Any) -> Iterator[AuditSession]:
    """An audit of `sources`, or of the specification in `root` for none."""

    def judge_of(spec: Any) -> Any:
        return judge_for(spec, (), "error", date(2026, 11, 21), ())

    spec = load_spec(root / "buildmatrix.toml") if not sources else None
    with Client() as client:
        yield AuditSession(
            AuditInputs(sources, spec, root),
            CachingReader(WheelReader(client, None)),
            judge_of(spec),
            Silent(),
            AuditOptions(vulnerabilities=False, workspace=Workspace(cache=False), **more),
            judge_of,
        )


def write(root: Path, **files: str) -> None:
    """Write files; `__` in a name stands for a dot, `___` for a slash."""
    for name, text in files.items():
        path = root / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def git(folder: Path, *arguments: str) -> None:
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(
        ["git", *names, *arguments],
        cwd=folder,
        env=os.environ | identity,
        check=True,
        capture_output=True,
    )
