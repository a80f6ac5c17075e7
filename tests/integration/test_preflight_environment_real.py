"""Preflight of a Python environment of this machine in the sandbox that is here."""

from __future__ import annotations

import json
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from components import missing
from conftest import Buildmatrix

from buildmatrix.engines.oci import sandboxes

#: Passes where it can write nothing beside itself and reach nobody.
MODULE = """\
import os, pathlib, socket
try:
    pathlib.Path(__file__).with_name("written").touch()
except OSError:
    pass
else:
    raise ImportError("it can write into the environment")
assert [name for _, name in socket.if_nameindex()] == ["lo"]
assert "SECRET" not in os.environ
assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
"""


@pytest.fixture
def environment() -> Iterator[Path]:
    # Sandboxes have a /tmp of their own.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        venv.create(folder, symlinks=True)
        (packages,) = Path(folder).glob("lib/python3*/site-packages")
        (packages / "demo.py").write_text(MODULE)
        info = packages / "demo-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: demo\nVersion: 1.0\n")
        (info / "RECORD").write_text("demo.py,,\ndemo-1.0.dist-info/METADATA,,\n")
        yield Path(folder)


def test_rungs_run_in_the_sandbox_that_the_report_names(
    environment: Path, buildmatrix: Buildmatrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandboxes.usable()[0] is None:
        missing("a sandbox", "install bubblewrap or crun")
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    line = ("preflight", f"env:{environment}", "--backend", "cpu", "--level", "device")
    run = buildmatrix(tmp_path, *line, "--format", "json")
    assert run.code == 0, run.out + run.err
    (target,) = json.loads(run.out)["targets"]
    assert target["sandbox"] in ("crun", "runc", "chroot", "bwrap")
    assert [rung["state"] for rung in target["rungs"]] == ["not-run", "passed", "passed"]
