"""BM606: what was compiled for one machine against the node classes and libraries of a target.

Cubins, code objects and blobs are real (tests/unit/facts/elf/samples); the headers of engines are
as NVIDIA's samples read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rulecases import codes, only, target
from test_compiled_networks import (
    BLOB,
    CACHED,
    CUBIN,
    HSACO,
    MXR,
    PLAN,
    SAMPLES,
    TIMINGS,
    engine,
    neff,
    om,
    pipelines,
)
from test_nested import zipped

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.judge.judging import judge_image
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import NodeClass, Policy, Position, Target

OLDER = (SAMPLES / "triton-3.9.0-sm_80.cubin").read_bytes()
SITE = "usr/lib/python3.11/site-packages"


def machines(backend: str, *classes: tuple[str, Sequence[str], str]) -> Target:
    """A target on node classes, each with its name, architectures and level of x86-64."""
    position = Position("buildmatrix.toml", 1)
    nodes = tuple(
        NodeClass(name, backend, "", tuple(archs), {}, (), position, cpu=cpu)
        for name, archs, cpu in classes
    )
    return replace(target(backend), node_classes=nodes)


H100 = ("h100", ["sm_90"], "")
A100 = ("a100", ["sm_80"], "")


def installed(name: str, version: str) -> dict[str, bytes]:
    folder = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return {f"{folder}/METADATA": text.encode(), f"{folder}/RECORD": b""}


def judged(
    root: Path, where: Target, files: Mapping[str, bytes], policy: Policy | None = None
) -> tuple[Finding, ...]:
    for name, data in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    with DirectoryTree(root) as tree:
        inventory = collect(tree)
    seen = evidence(inventory, load())
    judgement = judge_image(where, inventory, seen, None, load(), policy or Policy())
    return judgement.findings


# Architectures


@pytest.mark.parametrize(
    ("classes", "severity"),
    [([A100], "error"), ([A100, H100], "warning"), ([], "note")],
)
def test_a_cubin_that_fits_no_class_or_not_all(
    tmp_path: Path, classes: list[tuple[str, Sequence[str], str]], severity: str
) -> None:
    findings = judged(tmp_path, machines("cuda", *classes), {"opt/app/add.cubin": CUBIN})
    assert codes(findings) == ["BM606"]
    assert findings[0].severity == severity
    assert "opt/app/add.cubin" in findings[0].message
    assert "sm_90" in findings[0].message
    if classes:
        assert "a100 (sm_80)" in findings[0].message
        assert "h100" not in findings[0].message


@pytest.mark.parametrize(("known", "severity"), [([H100], "note"), ([], "note"), ([A100], "error")])
def test_a_class_whose_gpus_nobody_knows_is_left_open_in_words(
    tmp_path: Path, known: list[tuple[str, Sequence[str], str]], severity: str
) -> None:
    where = machines("cuda", *known, ("lab", [], ""))
    (one,) = judged(tmp_path, where, {"opt/app/add.cubin": CUBIN})
    assert (one.rule, one.severity) == ("BM606", severity)
    assert "node class lab has no `archs` and no `products`" in one.message


def test_a_class_without_a_cpu_beside_one_that_has_is_left_open(tmp_path: Path) -> None:
    where = machines("cpu", ("new", [], "x86-64-v4"), ("lab", [], ""))
    (one,) = judged(tmp_path, where, {"opt/net.blob": BLOB})
    assert (one.rule, one.severity) == ("BM606", "note")
    assert "node class lab has no `cpu`" in one.message


def test_what_fits_all_classes_stays_quiet(tmp_path: Path) -> None:
    files = {"opt/app/add.cubin": CUBIN, "opt/app/engine.plan": engine(contents=CUBIN)}
    assert judged(tmp_path, machines("cuda", H100), files) == ()


PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry add()\n"


def test_a_network_with_code_for_the_driver_to_compile_runs_on_newer_devices(
    tmp_path: Path,
) -> None:
    whole = engine(contents=OLDER + bytes(64) + PTX + bytes(64))
    assert judged(tmp_path, machines("cuda", H100), {"app/a.plan": whole}) == ()
    (one,) = judged(tmp_path, machines("cuda", H100), {"app/a.plan": engine(contents=OLDER)})
    assert one.severity == "error"


@pytest.mark.parametrize(
    "names", [("k/sm_80/add.cubin", "k/sm_90/add.cubin"), ("a.cubin", "b.cubin")]
)
def test_objects_for_each_machine_stand_for_one_another(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    files = {f"opt/{names[0]}": OLDER, f"opt/{names[1]}": CUBIN}
    assert judged(tmp_path, machines("cuda", A100, H100), files) == ()


def test_code_objects_of_migraphx_name_the_gpu(tmp_path: Path) -> None:
    where = machines("rocm", ("mi210", ["gfx90a"], ""))
    (one,) = judged(tmp_path, where, {"opt/net.mxr": MXR})
    assert (one.rule, one.severity) == ("BM606", "error")
    assert "gfx942" in one.message
    assert judged(tmp_path, machines("rocm", ("mi300", ["gfx942"], "")), {}) == ()


@pytest.mark.parametrize(
    ("name", "classes", "severity"),
    [
        ("TRTKernel_graph_0_sm90.engine", [A100], "warning"),
        ("TRTKernel_graph_0_sm90.engine", [A100, H100], "note"),
        ("TRTKernel_graph_0_sm90.engine", [H100], None),
        ("TRTKernel_graph_0_sm80+.engine", [H100], "note"),
        ("prism90.engine", [H100], "note"),
        ("model.engine", [], None),
    ],
)
def test_the_name_of_an_engine_is_a_trace_and_no_proof(
    tmp_path: Path, name: str, classes: list[tuple[str, Sequence[str], str]], severity: str | None
) -> None:
    findings = judged(tmp_path, machines("cuda", *classes), {f"opt/{name}": engine()})
    assert [one.severity for one in findings] == ([severity] if severity else [])


def test_another_backends_artifacts_are_bm401s_alone(tmp_path: Path) -> None:
    files = {
        "app/a.cubin": CUBIN,
        "app/a.engine": engine(),
        "app/a.hsaco": HSACO,
        "app/a.neff": neff(),
        "app/a.om": om(),
    }
    findings = judged(tmp_path, machines("cpu", ("plain", [], "x86-64-v3")), files)
    assert set(codes(findings)) == {"BM401"}
    assert len(findings) == 4
    found = judged(tmp_path, machines("rocm", ("mi300", ["gfx942"], "")), {})
    assert {one.vendor for one in found} == {"aws", "huawei", "nvidia"}


@pytest.mark.parametrize(
    ("backend", "vendor", "rules"),
    [
        ("cuda", 0x10DE, []),
        ("cuda", 0x1002, ["BM401"]),
        ("rocm", 0x1002, []),
        ("rocm", 0x8086, ["BM401"]),
        ("oneapi", 0x8086, []),
        ("openvino", 0x8086, []),
        ("cpu", 0x10DE, ["BM401"]),
        ("vulkan", 0x10DE, []),
        ("opencl", 0x10DE, ["BM401"]),
        ("cpu", 0x10005, []),
    ],
)
def test_a_pipeline_cache_is_its_vendors_and_at_home_on_vulkan(
    tmp_path: Path, backend: str, vendor: int, rules: list[str]
) -> None:
    findings = judged(tmp_path, target(backend), {"app/pipelines.bin": pipelines(vendor)})
    assert codes(findings) == rules


def test_for_which_gpu_a_pipeline_cache_is_stays_open(tmp_path: Path) -> None:
    (one,) = judged(tmp_path, machines("cuda", H100), {"app/pipelines.bin": pipelines()})
    assert (one.rule, one.severity) == ("BM606", "note")
    assert "(Vulkan pipeline cache) may not run on h100 (sm_90)" in one.message
    assert "device 0x2330 of vendor 0x10de" in one.message


@pytest.mark.parametrize(
    ("archs", "severity", "said"),
    [
        ((["gfx942"],), "warning", "is compiled again on a (gfx942)"),
        ((["sm_90"],), "note", "may not run on a (sm_90)"),
        ((["gfx942"], ["sm_90"]), "note", "is compiled again on a (gfx942); it may not run on b"),
        (([],), None, ""),
    ],
)
def test_a_pipeline_cache_on_devices_of_other_vendors(
    tmp_path: Path, archs: tuple[list[str], ...], severity: str | None, said: str
) -> None:
    classes = [(name, held, "") for name, held in zip("ab", archs, strict=False)]
    where = machines("vulkan", *classes)
    findings = judged(tmp_path, where, {"app/pipelines.bin": pipelines(0x10DE)})
    assert [one.severity for one in findings] == ([severity] if severity else [])
    assert not severity or said in findings[0].message


def test_the_gpu_in_the_header_of_an_engine_is_a_trace(tmp_path: Path) -> None:
    (one,) = judged(tmp_path, machines("cuda", H100), {"app/a.plan": PLAN})
    assert one.severity == "warning"
    assert "is for sm_89, as its header says, and does not run on node class h100" in one.message
    assert judged(tmp_path, machines("cuda", ("ada", ["sm_89"], "")), {}) == ()


def test_a_timing_cache_is_a_cache_and_its_name_says_for_what(tmp_path: Path) -> None:
    name = "app/TensorrtExecutionProvider_cache_sm87.timing"
    (one,) = judged(tmp_path, machines("cuda", H100), {name: TIMINGS})
    assert one.severity == "warning"
    assert f"{name} (TensorRT timing cache) is for sm_87, as its name says" in one.message
    assert judged(tmp_path, machines("cuda", ("orin", ["sm_87"], "")), {}) == ()
    (other,) = judged(tmp_path / "b", machines("cpu"), {"a.timing": TIMINGS})
    assert other.rule == "BM401"


def test_half_a_header_of_a_pipeline_cache_is_undecided(tmp_path: Path) -> None:
    findings = judged(tmp_path, machines("cuda", H100), {"app/p.bin": pipelines()[:28]})
    assert codes(findings) == ["BM606", "BM902"]


# A cache


CACHE = "root/.triton/cache/5MLRE6TRGDYO7JUP/add.cubin"


def test_a_cache_of_kernels_for_other_machines_is_wasted(tmp_path: Path) -> None:
    (one,) = judged(tmp_path, machines("cuda", A100), {CACHE: CUBIN})
    assert (one.rule, one.severity, one.path) == ("BM606", "warning", "root/.triton/cache")
    assert "is compiled again on node class a100 (sm_80)" in one.message
    assert judged(tmp_path, machines("cuda", H100), {}) == ()


def test_a_large_cache_that_does_not_fit_is_one_finding(tmp_path: Path) -> None:
    policy = Policy(bloat_threshold=100)
    assert codes(judged(tmp_path, machines("cuda", A100), {CACHE: CUBIN}, policy)) == ["BM606"]
    assert codes(judged(tmp_path, machines("cuda", H100), {}, policy)) == ["BM605"]


def test_a_cache_of_which_it_is_open_whether_it_fits_is_weighed_all_the_same(
    tmp_path: Path,
) -> None:
    where = machines("cuda", H100, ("lab", [], ""))
    findings = judged(tmp_path, where, {CACHE: CUBIN}, Policy(bloat_threshold=100))
    assert codes(findings) == ["BM605", "BM606"]


def test_a_cache_for_another_backend_is_bm605s_alone(tmp_path: Path) -> None:
    findings = judged(tmp_path, machines("rocm", ("mi300", ["gfx942"], "")), {CACHE: CUBIN})
    assert codes(findings) == ["BM605"]


# Versions


@pytest.mark.parametrize(
    ("wrote", "present", "severity"),
    [
        ((10, 3, 0, 26), "10.8.0.43", "warning"),
        ((10, 8, 0, 43), "10.3.0", "error"),
        ((8, 6, 1, 6), "10.8.0.43", "warning"),
        ((8, 6, 1, 6), "11.0.0", "error"),
        ((10, 8, 0, 43), "11.1.0", "warning"),
        ((10, 8, 0, 43), "12.0.0", "warning"),
        ((11, 0, 0, 1), "10.8.0.43", "error"),
        ((10, 8, 0, 30), "10.8.0.43", None),
        ((10, 8, 0, 43), None, None),
    ],
)
def test_an_engine_needs_the_version_that_built_it(
    tmp_path: Path, wrote: tuple[int, ...], present: str | None, severity: str | None
) -> None:
    files = {"opt/app/model.plan": engine(*wrote)}
    if present:
        files |= installed("tensorrt-cu12", present)
    findings = judged(tmp_path, target("cuda"), files)
    assert [one.severity for one in findings if one.rule == "BM606"] == (
        [severity] if severity else []
    )


def test_the_version_of_a_library_is_in_its_name_too(tmp_path: Path) -> None:
    library = (SAMPLES / "triton-3.9.0-sm_80.cubin").read_bytes()[:0] + b"\x7fELF\x02\x01\x01"
    files = {
        "opt/app/model.plan": engine(10, 3, 0, 26),
        "usr/lib/x86_64-linux-gnu/libnvinfer.so.10.8.0": library.ljust(64, b"\0"),
        "var/lib/dpkg/status": b"Package: libnvinfer10\nStatus: install ok installed\n"
        b"Version: 10.8.0.43-1+cuda12.8\n",
    }
    one = only(judged(tmp_path, target("cuda"), files), "BM606")
    assert "TensorRT 10.8.0" in one.message
    assert one.message.startswith("opt/app/model.plan (TensorRT engine of TensorRT 10.3.0.26)")


def test_packages_with_like_names_are_not_the_library(tmp_path: Path) -> None:
    files = {"opt/model.plan": engine(10, 3, 0, 26)}
    files |= installed("tensorrt-llm", "1.0.0") | installed("torch-tensorrt", "2.9.0")
    assert "BM606" not in codes(judged(tmp_path, target("cuda"), files))


def test_architecture_and_version_are_one_finding_with_both_reasons(tmp_path: Path) -> None:
    files = {"opt/model.plan": engine(10, 8, 0, 43, contents=CUBIN)}
    files |= installed("tensorrt", "10.3.0.26")
    one = only(judged(tmp_path, machines("cuda", A100), files), "BM606")
    assert "does not load it; it is for sm_90" in one.message


# Processors


@pytest.mark.parametrize("data", [BLOB, CACHED])
@pytest.mark.parametrize(
    ("levels", "severity"),
    [
        (["x86-64-v3"], "error"),
        (["x86-64-v3", "x86-64-v4"], "warning"),
        (["x86-64-v4"], None),
        ([""], None),
    ],
)
def test_a_blob_of_openvino_needs_the_instructions_of_its_processor(
    tmp_path: Path, data: bytes, levels: list[str], severity: str | None
) -> None:
    where = machines("cpu", *((f"n{index}", [], cpu) for index, cpu in enumerate(levels)))
    findings = judged(tmp_path, where, {"opt/net.blob": data})
    assert [one.severity for one in findings] == ([severity] if severity else [])


def test_a_blob_of_another_openvino_is_compiled_again(tmp_path: Path) -> None:
    files = {"opt/net.blob": BLOB} | installed("openvino", "2025.4.0")
    one = only(judged(tmp_path, target("cpu"), files), "BM606")
    assert one.severity == "warning"
    assert "OpenVINO 2025.4.0" in one.message
    assert (
        judged(tmp_path / "b", target("cpu"), {"a.blob": BLOB} | installed("openvino", "2026.4.1"))
        == ()
    )


# Bad input


def test_an_engine_cut_in_half_is_undecided(tmp_path: Path) -> None:
    data = engine(contents=bytes(99) + CUBIN)
    findings = judged(tmp_path, machines("cuda", H100), {"opt/model.plan": data[:-1500]})
    assert codes(findings) == ["BM902"]
    assert findings[0].path == "opt/model.plan"


# Archives


def test_kernels_in_a_package_of_aotinductor_are_one_artifact(tmp_path: Path) -> None:
    package = zipped({"data/aotinductor/model/a.cubin": CUBIN, "version": b"1\n"})
    where = machines("cuda", A100)
    (one,) = judged(tmp_path, where, {"app/model.pt2": package})
    assert (one.rule, one.severity, one.path) == ("BM606", "error", "app/model.pt2")
    both = zipped({"a.cubin": CUBIN, "b.cubin": OLDER, "version": b"1\n"})
    assert judged(tmp_path, where, {"app/model.pt2": both}) == ()
