"""Hand-made specifications with one target per backend, for the tests of rendering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from buildmatrix.base.data import replace
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.matrix.model import Base, Policy, Spec, Target, User

DIGEST = "sha256:" + "5e" * 32


def target(backend: str, runtime: str, archs: tuple[str, ...], base: Base, **more: Any) -> Target:
    """A target of the usual shape."""
    name = f"{backend}{'' if runtime == 'any' else runtime}-py312-server"
    values: dict[str, Any] = {
        "id": name,
        "project": "inferno",
        "backend": backend,
        "runtime": runtime,
        "runtime_values": {},
        "python": "3.12",
        "variant": "server",
        "platform": "linux/amd64",
        "base": base,
        "requirements": ("requirements/base.in",),
        "extras": (),
        "pyproject": None,
        "replace": {},
        "drop": (),
        "no_binary": (),
        "index": {},
        "torch": None,
        "archs": archs,
        "system_packages": ("libgomp1",),
        "env": {"INFERNO_BACKEND": backend},
        "labels": {"org.opencontainers.image.vendor": "Acme"},
        "template": f"{backend}.Dockerfile.j2",
        "copy": (("images/app", "/app"),),
        "command": ("python", "-m", "inferno"),
        "user": User("app", 10001, ("video",)),
        "image": "registry.example.com/acme/inferno",
        "tags": (f"1.4.0-{name}",),
        "lock": f"locks/pylock.{name}.toml",
        "smoke": (),
    }
    return Target(**(values | more))


CUDA = target(
    "cuda",
    "12.8",
    ("sm_80", "sm_90a"),
    Base("nvidia/cuda:12.8.1-devel-ubuntu24.04", "nvidia/cuda:12.8.1-base-ubuntu24.04"),
)
ROCM = target(
    "rocm",
    "7.2",
    ("gfx90a", "gfx942"),
    Base("rocm/dev-ubuntu-24.04:7.2.4-complete", "rocm/dev-ubuntu-24.04:7.2.4"),
    runtime_values={"full": "7.2.4"},
    user=User("app", 10001, ("video", "render")),
)
ONEAPI = target(
    "oneapi",
    "2025.3",
    (),
    Base("intel/deep-learning-essentials:2025.3.2-0-devel-ubuntu24.04", "ubuntu:24.04"),
)
CPU = target(
    "cpu",
    "any",
    (),
    Base("python:3.12-slim-bookworm@sha256:" + "ab" * 32, "python:3.12-slim-bookworm"),
    platform="linux/arm64",
    system_packages=(),
    env={},
    labels={},
    copy=(),
    command=(),
    user=User(),
)
BACKENDS = (CUDA, ROCM, ONEAPI, CPU)


def spec_of(root: Path, *targets: Target, **more: Any) -> Spec:
    """A specification in `root` that holds `targets`."""
    spec = Spec(
        path=root / "buildmatrix.toml",
        project="inferno",
        version="1.4.0",
        source="https://git.example.com/acme/inferno",
        targets=targets,
        excluded=(),
        subsets={},
        node_classes=(),
        policy=Policy(),
        waivers=(),
        tools={
            "uv": "ghcr.io/astral-sh/uv:0.9.30",
            "micromamba": "mambaorg/micromamba:2.8.1",
            "scanner": "python:3.12-slim-bookworm",
        },
    )
    return replace(spec, **more)


def lock_of(one: Target, *, source_only: bool = False) -> Lock:
    """A lock of one package."""
    wheel = Wheel("numpy-2.1-py3-none-any.whl", "https://wheels.example.com/numpy.whl", "0" * 64)
    package = Package(
        name="numpy",
        version="2.1",
        index="https://wheels.example.com/simple",
        wheels=() if source_only else (wheel,),
        source_only=source_only,
        via=("requirements/base.in:1",),
    )
    return Lock(Path(one.lock), (package,), "sha256:1", DIGEST)
