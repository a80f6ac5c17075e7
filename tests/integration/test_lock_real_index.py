"""Locking against the machine's real package index."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildmatrix.locks.model import Lock
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.locks.status import staleness
from buildmatrix.progress import Silent
from buildmatrix.spec.model import Base, Policy, Spec, Target, User

pytestmark = pytest.mark.network


def cpu_target(requirements: tuple[str, ...], **replace: str) -> Target:
    return Target(
        id="cpu-py312-server",
        project="inferno",
        backend="cpu",
        runtime="any",
        runtime_values={},
        python="3.12",
        variant="server",
        platform="linux/amd64",
        base=Base("python:3.12-slim-bookworm", "python:3.12-slim-bookworm"),
        requirements=requirements,
        extras=(),
        pyproject=None,
        replace={name.replace("_", "-"): twin for name, twin in replace.items()},
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
        command=(),
        user=User(),
        image="inferno",
        tags=("cpu",),
        lock="locks/pylock.cpu-py312-server.toml",
        smoke=(),
    )


def resolved(root: Path, one: Target) -> Lock:
    spec = Spec(
        path=root / "buildmatrix.toml",
        project="inferno",
        version="1.0",
        source=None,
        targets=(one,),
        excluded=(),
        subsets={},
        node_classes=(),
        policy=Policy(),
        waivers=(),
    )
    locks = lock_targets(spec, [one], upgrade=False, offline=False, progress=Silent(), jobs=1)
    lock = locks[one.id]
    assert isinstance(lock, Lock), lock
    assert staleness(spec, one) is None
    return lock


def test_xgboost_brings_nccl_into_a_cpu_lock_and_its_twin_does_not(tmp_path: Path) -> None:
    (tmp_path / "base.in").write_text("numpy\nxgboost\n")
    plain = {
        package.name: package for package in resolved(tmp_path, cpu_target(("base.in",))).packages
    }
    nccl = next(name for name in plain if name.startswith("nvidia-nccl"))
    assert plain[nccl].via == ("xgboost",)
    swapped = resolved(tmp_path, cpu_target(("base.in",), xgboost="xgboost-cpu"))
    found = {package.name: package for package in swapped.packages}
    assert found["xgboost-cpu"].via == ("base.in:2",)
    assert not [name for name in found if name.startswith("nvidia-") or name == "xgboost"]


def test_only_wheels_for_the_targets_python_and_platform_are_locked(tmp_path: Path) -> None:
    (tmp_path / "base.in").write_text("numpy\n")
    (numpy,) = resolved(tmp_path, cpu_target(("base.in",))).packages
    assert numpy.wheels
    for wheel in numpy.wheels:
        assert "cp312-cp312-manylinux" in wheel.filename
        assert wheel.filename.endswith("x86_64.whl")
