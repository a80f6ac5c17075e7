"""Which device code runs on which GPU, and what runtimes and local versions mean."""

from __future__ import annotations

import pytest

from buildmatrix.catalogue.drivers import grade, support
from buildmatrix.catalogue.releases import runtime_of_build, toolkit_line


@pytest.mark.parametrize(
    ("device", "codes", "expected"),
    [
        ("sm_86", ["sm_80"], "native"),
        ("sm_80", ["sm_86"], "none"),
        ("sm_90", ["sm_80"], "none"),
        ("sm_90", ["compute_70"], "jit"),
        ("sm_70", ["compute_90"], "none"),
        ("sm_120", ["sm_90", "compute_90"], "jit"),
        ("sm_90", ["sm_90", "compute_80"], "native"),
        ("sm_90", ["sm_90a"], "native"),
        ("sm_100", ["compute_90a"], "none"),
        ("sm_103", ["sm_100f"], "native"),
        ("sm_103", ["sm_100a"], "none"),
        ("sm_120", ["sm_100f"], "none"),
        ("sm_103", ["sm_101"], "none"),
        ("sm_101", ["sm_100"], "none"),
        ("sm_103", ["compute_101f"], "none"),
        ("sm_103", ["compute_101"], "jit"),
        ("sm_110", ["sm_101a"], "native"),
        ("sm_101", ["sm_110f"], "native"),
        ("sm_72", ["sm_70"], "none"),
        ("sm_75", ["sm_72", "compute_72"], "jit"),
        ("sm_62", ["sm_62"], "native"),
        ("gfx942", ["gfx942"], "native"),
        ("gfx942", ["gfx90a"], "none"),
        ("gfx942", ["gfx942:sramecc+:xnack-"], "native"),
        ("gfx942:xnack+", ["gfx942:xnack-"], "none"),
        ("gfx1102", ["gfx11-generic"], "native"),
        ("gfx1201", ["gfx11-generic"], "none"),
        ("gfx942", ["gfx9-generic"], "none"),
        ("gfx942", ["gfx9-4-generic"], "native"),
        ("bmg-g21", ["spir64"], "jit"),
        ("bmg-g21", ["bmg-g21"], "native"),
        ("sm_90", ["spir64"], "none"),
        ("bmg-g21", ["spir64_gen"], "unknown"),
        ("sm_90", [], "none"),
    ],
)
def test_support(device: str, codes: list[str], expected: str) -> None:
    assert support(device, codes) == expected


@pytest.mark.parametrize(
    ("device", "codes", "expected"),
    [
        ("sm_86", ["sm_80", "compute_80"], "native"),
        ("sm_100", ["sm_100f"], "native"),
        ("sm_103", ["sm_100f"], "family"),
        ("sm_103", ["sm_100f", "sm_103a"], "native"),
        ("sm_110", ["sm_100f"], "none"),
        ("sm_103", ["compute_100f"], "jit"),
        ("gfx1102", ["gfx11-generic"], "generic"),
        ("gfx1102", ["gfx11-generic", "gfx1102"], "native"),
        ("gfx942", ["gfx9-4-generic:sramecc+:xnack-"], "generic"),
        ("gfx942:xnack+", ["gfx9-4-generic:xnack-"], "none"),
        ("gfx1102", ["amdgcnspirv"], "jit"),
        ("gfx1102", ["spir64"], "none"),
        ("gfx1102", ["sm_90"], "none"),
        ("sm_90", ["amdgcnspirv"], "none"),
        ("bmg-g21", ["intel_gpu_bmg_g21"], "native"),
        ("bmg-g21", ["bmg"], "family"),
        ("acm-g10", ["intel_gpu_dg2"], "family"),
        ("pvc", ["intel_gpu_bmg_g21"], "none"),
        ("pvc", ["spir64", "spir64_gen"], "jit"),
        ("pvc", ["spirv64_intel-intel"], "jit"),
        ("pvc", ["gfx942", "sm_90"], "none"),
        ("pvc", [], "none"),
    ],
)
def test_grade(device: str, codes: list[str], expected: str) -> None:
    assert grade(device, codes) == expected


@pytest.mark.parametrize(
    ("runtime", "line"), [("12.8", "12"), ("7.2", "7"), ("2025.0", "2025"), ("any", None)]
)
def test_the_toolkit_line_is_the_first_number(runtime: str, line: str | None) -> None:
    assert toolkit_line(runtime) == line


@pytest.mark.parametrize(
    ("local", "runtime"),
    [
        ("cu128", "12.8"),
        ("cu92", "9.2"),
        ("rocm6.4", "6.4"),
        ("rocm6.2.4", "6.2"),
        ("cpu", None),
        ("xpu", None),
        ("", None),
    ],
)
def test_a_local_version_names_the_runtime_it_was_built_for(
    local: str, runtime: str | None
) -> None:
    assert runtime_of_build(local) == runtime
