"""Hand-made specifications for the tests of the lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from buildmatrix.base.data import replace
from buildmatrix.matrix.model import Spec, Target, bare_spec, bare_target

CPU = replace(
    bare_target(
        "cpu-py311-server",
        "cpu",
        base="python:3.11-slim-bookworm",
        python="3.11",
        lock="locks/pylock.cpu-py311-server.toml",
    ),
    project="inferno",
    variant="server",
    requirements=("requirements.in",),
    template="cpu.Dockerfile.j2",
    command=("python", "-m", "inferno"),
    image="ghcr.io/acme/inferno",
    tags=("1.4.0-cpu-py311-server",),
)


def target(**changes: Any) -> Target:
    """The CPU target with other values."""
    return replace(CPU, **changes)


def spec_of(root: Path, *targets: Target) -> Spec:
    """A specification in `root` that holds `targets`."""
    return replace(
        bare_spec(*targets), path=root / "buildmatrix.toml", project="inferno", version="1.4.0"
    )
