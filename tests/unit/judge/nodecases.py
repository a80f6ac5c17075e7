"""Targets with node classes, and the files of CUDA images that drivers care about."""

from __future__ import annotations

from rulecases import elf, file, target

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Binary
from buildmatrix.matrix.model import NodeClass, Position, Target

HERE = Position("buildmatrix.toml", 1)


def node(
    driver: str = "",
    *archs: str,
    name: str = "node",
    backend: str = "cuda",
    products: tuple[str, ...] = (),
    kernel: str = "",
) -> NodeClass:
    return NodeClass(name, backend, driver, archs, {}, (), HERE, products=products, kernel=kernel)


def on(*nodes: NodeClass, runtime: str = "12.8", backend: str = "cuda") -> Target:
    return replace(target(backend, runtime), node_classes=nodes)


def cudart(version: str = "12.8.90") -> Binary:
    line = version.partition(".")[0]
    name = "nvidia-cuda-runtime" + (f"-cu{line}" if line != "13" else "")
    soname = f"libcudart.so.{line}"
    return file(f"nvidia/cuda_runtime/lib/{soname}", elf(soname), f"{name} {version}")


def compat(driver: str = "570.86.10", folder: str = "usr/local/cuda/compat") -> Binary:
    return file(f"{folder}/libcuda.so.{driver}", elf("libcuda.so.1"))
