"""The few places where golden tests reach into buildmatrix; a move of these changes this file only.

What they replace is the outside world: the container engine, the machine that `doctor` sees, and
how fast it is.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fake_engine import SETTINGS, FakeEngine
from golden_registry import FileRegistry

from buildmatrix import __version__
from buildmatrix.catalogue.load import load
from buildmatrix.cli import displays
from buildmatrix.engines import docker_engine as engine
from buildmatrix.engines.oci import sandboxes
from buildmatrix.net import registry_client
from buildmatrix.preflight import machine

VERSION = __version__


def catalogue_date() -> str:
    """The date that reports name as the catalogue's."""
    return load().date


def replace_the_outside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show commands an empty machine, and the fake engine where `folder` has settings for it."""
    real = engine.DockerEngine
    monkeypatch.setattr(
        engine,
        "DockerEngine",
        lambda: FakeEngine(folder) if (folder / SETTINGS).exists() else real(),
    )
    monkeypatch.setattr(sandboxes, "usable", lambda: (object(), "bwrap"))
    monkeypatch.setattr(registry_client, "Registry", lambda **_: FileRegistry(folder))
    files, here = machine.MachineFiles, folder / "machine"
    monkeypatch.setattr(machine, "MachineFiles", lambda root=here: files(root))
    # A slow machine prints how far a part has come; what commands print here is of no machine.
    monkeypatch.setattr(displays, "CALM", math.inf)
