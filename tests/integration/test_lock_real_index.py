"""Locking against the machine's real package index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from buildmatrix.base.data import replace
from buildmatrix.base.progress import Silent
from buildmatrix.locks.model import Lock
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.locks.status import staleness
from buildmatrix.locks.uv import Uv
from buildmatrix.matrix.model import Base, Policy, Spec, Target, User, bare_spec

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


def test_targets_that_ask_the_same_are_resolved_once_and_have_equal_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base.in").write_text("onnxruntime\nidna\n")
    calls: list[str] = []
    run = Uv.run

    def counted(uv: Uv, arguments: Sequence[str], *others: Any) -> Any:
        calls.append(next(part for part in arguments if part.startswith("--python-version")))
        return run(uv, arguments, *others)

    monkeypatch.setattr(Uv, "run", counted)
    pythons = {"a": "3.12", "b": "3.13", "c": "3.12", "d": "3.13"}
    target = cpu_target(("base.in",))
    targets = [
        replace(target, id=f"cpu-{name}", variant=name, python=python, lock=f"{name}.toml")
        for name, python in pythons.items()
    ]
    spec = replace(bare_spec(*targets), path=tmp_path / "buildmatrix.toml")
    locks = lock_targets(spec, targets, upgrade=False, offline=False, progress=Silent(), jobs=2)
    assert all(isinstance(lock, Lock) for lock in locks.values()), locks
    # Of each question: the graph, and the lock with its hashes.
    assert sorted(calls) == ["--python-version=3.12"] * 2 + ["--python-version=3.13"] * 2
    assert not any(staleness(spec, target) for target in targets)
    texts = [(tmp_path / target.lock).read_text() for target in targets]
    assert texts[2] == texts[0].replace('"cpu-a"', '"cpu-c"')
    assert texts[3] == texts[1].replace('"cpu-b"', '"cpu-d"')
    assert "onnxruntime" in texts[0]
