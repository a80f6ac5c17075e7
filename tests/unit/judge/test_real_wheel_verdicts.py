"""What the rules say of real wheels, against what their makers say of them.

`tests/corpus/wheel_records.json` has what was read of the wheels; tests/integration reads some of
them again. docs/compatibility.md says where each truth comes from.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from nodecases import node, on
from rulecases import of_image, only
from test_fit import cells
from wheel_records import inventory, read_records

from buildmatrix.base.data import replace
from buildmatrix.catalogue.drivers import READY, grade
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.inventory.model import Distribution
from buildmatrix.judge.coverage import coverage
from buildmatrix.judge.judging import built
from buildmatrix.matrix.model import NodeClass, Policy

RECORDS = read_records()
BUILD_INFO = "tensorflow/python/platform/build_info.py"
DEVICES = (50, 52, 60, 61, 70, 75, 80, 86, 89, 90, 100, 103, 120, 121)

#: `torch.cuda.get_arch_list()`: the text that is compiled into libtorch_python.so.
TORCH = {
    "1.13.1": "sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86",
    "2.1.2": "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90",
    "2.6.0": "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90",
    "2.14.0": "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
    "2.15.0": "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
}
#: What Paddle says on other GPUs: `not compatible with Paddle installation with arch: 70 75 80 86`
#: (Paddle #54713), `compute capability in your current machine is 90, which is not supported`
#: (Paddle #58971, PaddleHelix #369).
PADDLE = {"2.5.2": "sm_70 sm_75 sm_80 sm_86"}


def architectures_by_their_makers() -> dict[str, Sequence[str]]:
    said: dict[str, Sequence[str]] = {
        **{f"torch=={version}": archs.split() for version, archs in TORCH.items()},
        **{f"paddlepaddle-gpu=={version}": archs.split() for version, archs in PADDLE.items()},
    }
    for name, record in RECORDS.items():
        if BUILD_INFO in record["statements"]:
            said[name] = record["statements"][BUILD_INFO]["cuda_compute_capabilities"]
    return said


SAID = architectures_by_their_makers()


def simply(text: str) -> str:
    return "ready" if text in READY else text


@pytest.mark.parametrize("name", SAID)
def test_a_framework_runs_where_its_own_list_says(name: str) -> None:
    facts, catalogue = inventory(name, RECORDS[name]), load()
    image = built(on(), facts, evidence(facts, catalogue), None, catalogue, Policy(), None, ())
    expected = {f"sm_{number}": simply(grade(f"sm_{number}", SAID[name])) for number in DEVICES}
    seen = {}
    for number in DEVICES:
        (holder,) = coverage(image, f"sm_{number}")
        seen[f"sm_{number}"] = simply(holder.served.grade)
    assert seen == expected


def test_every_family_has_three_versions() -> None:
    families: dict[str, list[str]] = {}
    for name in RECORDS:
        family, _, version = name.partition("==")
        families.setdefault(family, []).append(version)
    for family in ("torch", "tensorflow", "onnxruntime-gpu", "paddlepaddle-gpu", "torch-npu",
                   "jax-cuda12-plugin"):  # fmt: skip
        assert len(families[family]) >= 3, family


T4 = node("450.80.02", name="t4", products=("Tesla-T4",))
P100 = node("535.104.05", "sm_60", name="p100")
V100 = node("535.104.05", "sm_70", name="v100")
A100 = node("535.104.05", "sm_80", name="a100")
H100 = node("550.54.15", name="h100", products=("NVIDIA-H100-80GB-HBM3",))
H100_NEW = node("570.124.06", "sm_90", name="h100-570")
B200 = node("570.124.06", "sm_100", name="b200")
B300 = node("580.65.06", "sm_103", name="b300")
RTX50 = node("570.124.06", "sm_120", name="rtx50")
RTX50_NEW = node("595.58.03", "sm_120", name="rtx50-595")
CUDA = (T4, P100, V100, A100, H100, H100_NEW, B200, B300, RTX50, RTX50_NEW)
MI50 = node("6.1", "gfx906", name="mi50", backend="rocm")
MI250 = node("6.4", "gfx90a", name="mi250", backend="rocm")
MI300 = node("6.4", "gfx942", name="mi300", backend="rocm")
MI350 = node("30.30", "gfx950", name="mi350", backend="rocm")
RX7600 = node("30.10", "gfx1102", name="rx7600", backend="rocm")
ROCM = (MI50, MI250, MI300, MI350, RX7600)
NPU = (node("25.5", "Ascend910B", name="910b", backend="npu"),)

WORDS = {
    "+": "ok",
    "m": "minor-version",
    "j": "jit",
    "?": "undecided",
    "-": "refused",
}
#: A sign for each node class of `CUDA`, or of `ROCM`.
GRID = {
    "cupy-cuda11x==11.6.0": "++++++jjjj",
    "cupy-cuda12x==13.3.0": "-mmmm+jjjj",
    "cupy-cuda12x==14.2.0": "-mmmmmm+m+",
    "cupy-cuda13x==13.6.0": "-------+-+",
    "cupy-cuda13x==14.2.0": "-------m-+",
    "cupy-rocm-5-0==11.6.0": "+----",
    "cupy-rocm-7-0==14.0.0": "-+++-",
    "cupy-rocm-7-0==14.2.0": "-+++-",
    # Its file says CUDA 12 alone, whose drivers an older one is not; nothing for Pascal.
    "cutensor-cu12==2.3.1": "--mmmmm+m+",
    "jax-cuda12-pjrt==0.4.23": "++++++jjjj",
    "jax-cuda12-plugin==0.4.23": "++++++jjjj",
    "jax-cuda12-plugin==0.6.2": "++++++++++",
    "jax-cuda12-plugin==0.10.2": "++++++++++",
    # CUDA 13 has nothing for GPUs before sm_75.
    "jax-cuda13-pjrt==0.10.2": "+--+++++++",
    "jax-cuda13-plugin==0.7.2": "+--+++++++",
    "jax-cuda13-plugin==0.10.2": "+--+++++++",
    "nvidia-cudnn-cu13==9.13.0.50": "-------+-+",
    "jax-rocm60-pjrt==0.4.35": "+++--",
    "jax-rocm60-plugin==0.4.35": "+++--",
    "jax-rocm7-plugin==0.6.0": "++++-",
    "jax-rocm7-plugin==0.10.2": "+++++",
    "jax-rocm7-pjrt==0.12.0": "+++++",
    "onnxruntime-gpu==1.15.1": "++++jjjjjj",
    "onnxruntime-gpu==1.20.2": "++++++jjjj",
    "onnxruntime-gpu==1.31.1": "+--+++--++",
    # MIGraphX compiles on the machine: there is no device code in it.
    "onnxruntime-migraphx==1.23.0": "+++++",
    "onnxruntime-migraphx==1.27.1": "+++++",
    "onnxruntime-rocm==1.22.2.post1": "-++--",
    "paddlepaddle-gpu==2.5.2": "m-++------",
    "paddlepaddle-gpu==2.6.0": "m-++------",
    "paddlepaddle-gpu==2.6.2": "m-++------",
    "tensorflow==2.12.0": "m++jjjjjjj",
    "tensorflow==2.15.1": "-++jjjjjjj",
    "tensorflow==2.18.1": "-mmmjjjjjj",
    # Driver 550 compiles PTX up to CUDA 12.4, and this is of 12.5.
    "tensorflow==2.21.0": "-mmm-jjjjj",
    "torch==1.13.1": "m+++------",
    "torch==2.1.2": "++++++----",
    "torch==2.6.0": "++++++----",
    "torch==2.14.0": "+--+++++++",
    "torch==2.15.0": "+--+++++++",
    "torch-npu==2.1.0": "+",
    "torch-npu==2.6.0": "+",
    # Its kernels do not name their devices.
    "torch-npu==2.14.0": "?",
}


@pytest.mark.parametrize("name", GRID)
def test_what_a_wheel_does_on_node_classes(name: str) -> None:
    backend, nodes = backend_of(name)
    seen = cells(inventory(name, RECORDS[name]), *nodes, backend=backend)
    signs = {word: sign for sign, word in WORDS.items()}
    assert "".join(signs[cell.state] for cell in seen) == GRID[name]


def backend_of(name: str) -> tuple[str, tuple[NodeClass, ...]]:
    if "rocm" in name or "migraphx" in name:
        return "rocm", ROCM
    return ("npu", NPU) if name.startswith("torch-npu") else ("cuda", CUDA)


def test_all_of_them_are_looked_at() -> None:
    assert set(GRID) == set(RECORDS)


@pytest.mark.parametrize(
    ("name", "arch", "severity"),
    [
        # torch says it when it starts: `not compatible with the current PyTorch installation`.
        ("torch==2.6.0", "sm_120", "error"),
        ("torch==2.1.2", "sm_100", "error"),
        ("torch==1.13.1", "sm_90", "error"),
        ("torch==2.15.0", "sm_60", "error"),
        ("paddlepaddle-gpu==2.6.2", "sm_90", "error"),
        ("cupy-cuda13x==14.2.0", "sm_70", "error"),
        ("cupy-rocm-5-0==11.6.0", "gfx90a", "error"),
        # A session opens the provider, and not the import.
        ("onnxruntime-gpu==1.31.1", "sm_100", "warning"),
        ("jax-rocm60-plugin==0.4.35", "gfx950", "warning"),
    ],
)
def test_a_gpu_that_a_real_wheel_has_no_code_for(name: str, arch: str, severity: str) -> None:
    backend = "rocm" if arch.startswith("gfx") else "cuda"
    where = on(node("", arch, backend=backend), backend=backend)
    finding = only(of_image(where, inventory(name, RECORDS[name])), "BM402")
    assert (finding.severity, finding.distribution) == (severity, name.partition("==")[0])
    # What another distribution requires is not what somebody asked for.
    asking = Distribution("app", "1", "app.dist-info", requires=(name.partition("==")[0],))
    facts = inventory(name, RECORDS[name])
    brought = replace(facts, distributions=(*facts.distributions, asking))
    assert only(of_image(where, brought), "BM402").severity == "warning"
