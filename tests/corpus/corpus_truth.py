"""What independent tools say about real wheels: `truth.json`, brought into sets that can be scored.

Every set holds tuples of strings. Paths are those of the wheel's tree (`trees.wheel.install_path`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from buildmatrix.facts.inventory.listing import distribution_name
from buildmatrix.facts.trees.wheel import install_path

TRUTH = Path(__file__).with_name("truth.json")
BACKENDS = ("cpu", "cuda", "rocm", "oneapi")

#: The truth's vendors of libraries -> the catalogue's. `nvidia-fw` are libraries of frameworks that
#: are themselves built for CUDA. Parts of Intel's stack for CPUs are no accelerator's.
VENDORS = {
    "nvidia": "nvidia",
    "nvidia-fw": "nvidia",
    "nvidia-mgmt": "nvidia",
    "amd": "amd",
    "intel-gpu": "intel",
    "huawei-ascend": "huawei",
    "google-tpu": "google",
    "khronos": "khronos",
}
NEUTRAL = "intel-cpu"

#: The truth's names of static runtimes -> the catalogue's.
STATIC = {
    "libcudart": "cudart",
    "nvrtc": "nvrtc",
    "nvJitLink": "nvjitlink",
    "MKL": "mkl",
    "oneDNN": "onednn",
    "LLVM/Intel OpenMP": "openmp",
    "OpenCL ICD loader": "opencl-loader",
    "SYCL runtime": "sycl",
    "UR loader": "ur-loader",
}

Facts = frozenset[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TrueWheel:
    """One wheel, and what is true of it."""

    name: str
    version: str
    filename: str
    size: int
    sha256: str
    #: Whether the verdicts come from its dependencies alone.
    transitive: bool = False
    #: By backend.
    verdicts: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    #: By field: `bundled`, `needed`, `sections`, `static`, `dlopen`, `gpu`, `requires`.
    facts: Mapping[str, Facts] = field(default_factory=dict)
    #: Names of CPU libraries of an accelerator's vendor, which must not become evidence.
    neutral: frozenset[str] = frozenset()
    #: Libraries and extensions of the distribution's own that need a vendor's: the truth counts
    #: them apart, so they are neither right nor wrong as bundled libraries.
    plugins: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def read_truth(path: Path = TRUTH) -> tuple[TrueWheel, ...]:
    """All wheels of a truth file, in its order."""
    return tuple(_wheel(item) for item in json.loads(path.read_text())["wheels"])


def _wheel(item: dict[str, Any]) -> TrueWheel:
    return TrueWheel(
        name=item["name"],
        version=item["version"],
        filename=item["filename"],
        size=item["size"],
        sha256=item["sha256"],
        transitive=item["transitive"],
        verdicts={backend: item["verdicts"][backend]["verdict"] for backend in BACKENDS},
        reasons={backend: item["verdicts"][backend]["reason"] for backend in BACKENDS},
        facts={
            "bundled": frozenset(
                (install_path(path), VENDORS[one["vendor"]])
                for path, one in item.get("bundled_vendor_libs", {}).items()
                if one["vendor"] != NEUTRAL
            ),
            "needed": frozenset(
                (install_path(path), one["soname"], VENDORS[one["vendor"]])
                for path, one in _each(item, "needed_vendor")
                if one["vendor"] != NEUTRAL
            ),
            "sections": frozenset(
                (install_path(path), one["section"]) for path, one in _each(item, "device_sections")
            ),
            "static": frozenset(
                (install_path(path), STATIC[one["evidence"].removeprefix("static:")])
                for path, one in _each(item, "static_evidence")
                if one["evidence"].startswith("static:")
            ),
            "dlopen": frozenset(
                (install_path(path), one["name"], VENDORS[one["vendor"]])
                for path, one in _each(item, "dlopen_strings")
                if one["vendor"] != NEUTRAL
            ),
            "gpu": frozenset(_architectures(item)),
            "requires": frozenset(
                (kind, distribution_name(Requirement(one["req"]).name))
                for kind, entries in item["requires_vendor"].items()
                for one in entries
                if one["vendor"] != NEUTRAL
            ),
        },
        neutral=frozenset(
            one[key]
            for table, key in (("needed_vendor", "soname"), ("dlopen_strings", "name"))
            for _, one in _each(item, table)
            if one["vendor"] == NEUTRAL
        ),
        plugins=frozenset(install_path(path) for path in item.get("vendor_plugin_libs", ())),
    )


def _each(item: dict[str, Any], table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, entries in item.get(table, {}).items():
        for one in entries:
            yield path, one


def _architectures(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, one in item.get("gpu_targets", {}).items():
        for number in one.get("cuda_sass", ()):
            yield install_path(path), f"sm_{number}"
        for number in one.get("cuda_ptx", ()):
            yield install_path(path), f"compute_{number}"
        for target in one.get("offload_bundle", ()):
            if target.startswith("gfx"):
                yield install_path(path), target
