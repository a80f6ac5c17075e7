"""Hand-made specifications for the tests of the lock."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from buildmatrix.spec.model import Base, Policy, Spec, Target, User

CPU = Target(
    id="cpu-py311-server",
    project="inferno",
    backend="cpu",
    runtime="any",
    runtime_values={},
    python="3.11",
    variant="server",
    platform="linux/amd64",
    base=Base("python:3.11-slim-bookworm", "python:3.11-slim-bookworm"),
    requirements=("requirements.in",),
    extras=(),
    pyproject=None,
    replace={},
    drop=(),
    no_binary=(),
    index={},
    torch=None,
    archs=(),
    system_packages=(),
    env={},
    labels={},
    template="cpu.Dockerfile.j2",
    copy=(),
    command=("python", "-m", "inferno"),
    user=User(),
    image="ghcr.io/acme/inferno",
    tags=("1.4.0-cpu-py311-server",),
    lock="locks/pylock.cpu-py311-server.toml",
    smoke=(),
)


def target(**changes: Any) -> Target:
    """The CPU target with other values."""
    return dataclasses.replace(CPU, **changes)


def spec_of(root: Path, *targets: Target) -> Spec:
    """A specification in `root` that holds `targets`."""
    return Spec(
        path=root / "buildmatrix.toml",
        project="inferno",
        version="1.4.0",
        source=None,
        targets=targets,
        excluded=(),
        subsets={},
        node_classes=(),
        policy=Policy(),
        waivers=(),
    )
