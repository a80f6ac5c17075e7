"""Locks of conda and pixi whose channels do not answer: names, builds and requirements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conda_locks import FORGE, PYTHON, conda_lock, package, pixi

from buildmatrix import cli

CUDA = "pytorch-2.8.0-cuda129_mkl_py312_h7947483_302"
CPU = "pytorch-2.8.0-cpu_mkl_py312_hea9ba1b_102"
#: `pixi.lock` of github.com/matthewfeickert/pytorch-gpu-pixi-example at c53e084f (MIT), and what
#: rattler 0.28 (py-rattler, `LockFile`) reads of it for linux-64.
PUBLIC = Path(__file__).parents[2] / "locks/data/pytorch-gpu-pixi-example"
#: Ordinary packages of conda-forge.
PLAIN = [
    package(PYTHON, "libgcc >=13"),
    package("libgcc-15.2.0-h767d61c_7"),
    package("numpy-2.1.0-py312h1103770_0", "python >=3.12,<3.13.0a0", "__glibc >=2.17"),
    package("mkl-2025.3.0-h0e700b2_463"),
    package("libarrow-23.0.1-h8d0bc35_8_cpu"),
    package("requests-2.32.3-pyhd8ed1ab_1", "python >=3.8", subdir="noarch"),
]


def audit(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    source: str = "pixi.lock",
    backend: str = "cpu",
    *more: str,
) -> tuple[int, dict[str, Any]]:
    name = source.partition("[")[0].partition(":")[0]
    (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as stop:
        cli.main(
            [
                *("--no-progress", "audit", source, f"--backend={backend}", *more),
                *("--offline", "--no-vulnerabilities", "--format=json", "--output=report.json"),
            ]
        )
    path = folder / "report.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    path.unlink(missing_ok=True)
    findings = report.get("findings", [])
    notes = [item for item in findings if item["severity"] == "note"]
    assert all("judged by name and build alone" in item["message"] for item in notes)
    report["findings"] = [item for item in findings if item not in notes]
    assert isinstance(stop.value.code, int)
    return stop.value.code, report


def failing(report: dict[str, Any]) -> list[str]:
    return [f"{item['rule']} {item['distribution']}" for item in report["findings"]]


def unfit(report: dict[str, Any]) -> list[str]:
    return [item["name"] for item in report["distributions"] if item["verdict"] != "ok"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def run(text: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        return audit(tmp_path, monkeypatch, text, *arguments)

    return run


@pytest.mark.parametrize("backend", ["cpu", "cuda", "rocm", "oneapi"])
def test_ordinary_packages_are_clean_everywhere(run, backend: str) -> None:
    code, report = run(pixi(PLAIN), "pixi.lock", backend)
    assert (code, report["findings"], unfit(report), report["unread"]) == (0, [], [], [])
    assert len(report["distributions"]) == len(PLAIN)


def test_a_build_for_the_cpu_is_clean_on_the_cpu(run) -> None:
    code, report = run(pixi([*PLAIN, package(CPU, "python", "mkl >=2024")]))
    assert (code, report["findings"], unfit(report)) == (0, [], [])


def test_a_build_for_the_cpu_is_an_error_on_an_accelerator(run) -> None:
    code, report = run(pixi([*PLAIN, package(CPU)]), "pixi.lock", "cuda")
    assert (code, failing(report)) == (1, ["BM104 conda:pytorch"])


@pytest.mark.parametrize("backend", ["cpu", "rocm"])
def test_a_build_for_cuda_fails_elsewhere_at_its_line(run, backend: str) -> None:
    text = pixi([*PLAIN, package("demo-1.0-py312_0", "pytorch >=2"), package(CUDA)])
    code, report = run(text, "pixi.lock", backend)
    assert (code, failing(report)) == (1, ["BM102 conda:pytorch"])
    (finding,) = report["findings"]
    line = 1 + text.splitlines().index(f"- conda: {FORGE}/linux-64/demo-1.0-py312_0.conda")
    assert finding["chain"][0] == f"pixi.lock:{line}"
    assert "its build is cuda129_mkl_py312_h7947483_302" in finding["message"]
    # What requires it is not usable either.
    assert unfit(report) == ["conda:demo", "conda:pytorch"]


def test_a_finding_begins_at_the_line_of_the_manifest(run, tmp_path: Path) -> None:
    (tmp_path / "pixi.toml").write_text('[feature.gpu.dependencies]\ndemo = "*"\n')
    with (tmp_path / "pixi.toml").open("a") as file:
        file.write('[environments]\ngpu = ["gpu"]\n')
    text = pixi([package("demo-1.0-0", "pytorch >=2"), package(CUDA)], {"gpu": [0, 1]})
    code, report = run(text, "pixi.lock[gpu]")
    (finding,) = report["findings"]
    assert (code, finding["rule"]) == (1, "BM102")
    assert finding["chain"][:2] == ["pixi.toml:2", "conda:demo 1.0+0"]


def test_a_lock_that_its_manifest_has_outgrown_is_stale(run, tmp_path: Path) -> None:
    (tmp_path / "pixi.toml").write_text('[dependencies]\nnumpy = "*"\nscipy = "*"\n')
    code, report = run(pixi(PLAIN))
    assert (code, [item["rule"] for item in report["findings"]]) == (1, ["BM106"])
    assert "pixi.toml:3 asks for scipy" in report["findings"][0]["message"]
    assert "run `pixi lock`" in report["findings"][0]["fix"]["text"]


def test_a_build_for_cuda_is_clean_on_cuda_and_on_its_line(run) -> None:
    text = pixi([*PLAIN, package(CUDA, "__cuda", "libcublas"), package("libcublas-12.9.1.4-h9_1")])
    assert run(text, "pixi.lock", "cuda")[0] == 0
    assert run(text, "pixi.lock", "cuda12.9")[0] == 0
    code, report = run(text, "pixi.lock", "cuda11.8")
    assert (code, {item["rule"] for item in report["findings"]}) == (1, {"BM103"})


@pytest.mark.parametrize("file", ["cuda-pathfinder-1.3.4-py_0", "cuda-core-0.4.1-py312_0"])
def test_python_packages_with_versions_of_their_own_are_of_no_line(run, file: str) -> None:
    text = pixi([*PLAIN, package(file), package("libcublas-12.9.1.4-h9_1")])
    code, report = run(text, "pixi.lock", "cuda12.9")
    assert (code, failing(report), unfit(report)) == (0, [], [])


@pytest.mark.parametrize(
    ("smuggled", "found"),
    [
        ([package("cuda-cudart-12.9.79-h5888daf_0")], "BM101 conda:cuda-cudart"),
        ([package("cuda-nvcc_linux-64-12.9.86-0")], "BM101 conda:cuda-nvcc_linux-64"),
        ([package("libcudnn-9.10.2.21-hf7e9902_0")], "BM101 conda:libcudnn"),
        ([package("nccl-2.28.9.1-h4d09622_0")], "BM101 conda:nccl"),
        ([package("cuda-cudart-12.9.79-cpu_0")], "BM101 conda:cuda-cudart"),
        ([package("cudatoolkit-11.8.0-h4ba93d1_13")], "BM101 conda:cudatoolkit"),
        ([package("hip-runtime-amd-6.0.2-0")], "BM101 conda:hip-runtime-amd"),
        ([package("rocm-smi-6.0.2-0")], "BM101 conda:rocm-smi"),
        ([package("dpcpp-cpp-rt-2025.1.0-intel_973")], "BM101 conda:dpcpp-cpp-rt"),
        ([package("dpcpp_linux-64-2025.1.0-intel_973")], "BM101 conda:dpcpp_linux-64"),
        # The name says nothing: the build string does, or what it requires.
        ([package("demo-1.0-py312_cuda12.1_0")], "BM102 conda:demo"),
        ([package("demo-1.0-py312_cu121")], "BM102 conda:demo"),
        ([package("demo-1.0-h0_7_cuda")], "BM102 conda:demo"),
        ([package("demo-1.0-cuda_126_py312")], "BM102 conda:demo"),
        ([package("demo-1.0-rocm6.2_py312")], "BM102 conda:demo"),
        ([package("demo-1.0-py312_0", "__cuda >=12.6")], "BM101 conda:__cuda"),
        ([package("demo-1.0-py312_0", "__cuda")], "BM101 conda:__cuda"),
        ([package("demo-1.0-0", "conda-forge::cuda-version >=12")], "BM101 conda:cuda-version"),
        ([package("demo-1.0-py312_0", "libcublas >=12.9")], "BM101 conda:libcublas"),
    ],
)
def test_smuggled_packages_are_caught_on_the_cpu(run, smuggled: list[str], found: str) -> None:
    code, report = run(pixi([*PLAIN, *smuggled]))
    assert (code, failing(report)) == (1, [found])


def test_a_package_of_an_unknown_channel_is_undecided_until_it_is_accepted(
    run, tmp_path: Path
) -> None:
    private = "https://conda.example.com/conda-forge"
    text = pixi([*PLAIN, *(package(f"acme-{n}-1.0-0", channel=private) for n in range(9))])
    code, report = run(text)
    assert code == 3
    (finding,) = report["findings"]
    assert finding["rule"] == "BM902"
    assert (
        "acme-0, acme-1, acme-2, acme-3, acme-4 and 4 more come from conda.example.com/"
        in (finding["message"])
    )


def test_a_vendor_package_of_an_unknown_channel_fails(run) -> None:
    channel = "https://conda.example.com/gpu"
    code, report = run(pixi([package("libcufft-11.4.1.4-0", channel=channel)]))
    assert (code, failing(report)) == (1, ["BM101 conda:libcufft"])


def test_environments_and_platforms_are_selected(run) -> None:
    text = pixi([*PLAIN, package(CUDA)], {"default": range(len(PLAIN)), "cuda": [len(PLAIN)]})
    code, report = run(text)
    assert code == 0
    assert "environments `cuda`. `pixi.lock[cuda]` looks" in report["targets"][0]["left_out"]
    assert run(text, "pixi.lock[cuda]")[0] == 1
    assert run(text, "pixi.lock[cuda]:linux-64", "cuda")[0] == 0
    assert run(text, "pixi.lock[cuda]:linux-aarch64", "cuda")[0] == 2
    assert run(text, "pixi.lock[cuda]:osx-arm64", "cuda")[0] == 2
    assert run(text, "pixi.lock:linux-64", "cpu", "--platform=linux/arm64")[0] == 2


def test_a_conda_lock_is_judged_alike(run) -> None:
    text = conda_lock(
        {"file": "python-3.12.7-h_0"},
        {"file": "libcublas-12.9.1.4-h9_1"},
        {"file": "pytorch-2.8.0-py312_0", "depends": "libcublas >=12", "category": "gpu"},
    )
    code, report = run(text, "conda-lock.yml")
    assert (code, failing(report)) == (1, ["BM101 conda:libcublas"])
    code, report = run(text, "conda-lock.yml:gpu")
    assert unfit(report) == ["conda:libcublas", "conda:pytorch"]


def test_sizes_of_the_lock_are_summed(run) -> None:
    _, report = run(pixi([*PLAIN, package("libcublas-12.9.1.4-h9_1")]))
    totals = report["targets"][0]["audit"]
    assert (totals["download"], totals["foreign_download"]) == (7000, 1000)


def test_a_manifest_of_pixi_means_the_lock_beside_it(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pixi.lock").write_text(pixi([package(CUDA)]))
    assert run("[workspace]\n", "pixi.toml")[0] == 1


def test_a_public_lock_is_read_as_rattler_reads_it(run) -> None:
    text = (PUBLIC / "pixi.lock").read_text()
    truth = json.loads((PUBLIC / "rattler.json").read_text())
    code, report = run(text, "pixi.lock", "cuda12.9")
    read = {
        item["name"].removeprefix("conda:"): item["version"] for item in report["distributions"]
    }
    assert read.pop("__cuda") == "any"
    assert read == {name: f"{version}+{build}" for name, (version, build, *_) in truth.items()}
    assert report["targets"][0]["audit"]["download"] == sum(size for *_, size in truth.values())
    assert (code, unfit(report)) == (0, [])
    code, report = run(text, "pixi.lock", "cpu")
    assert code == 1
    assert set(unfit(report)) >= {
        *("conda:pytorch", "conda:libtorch", "conda:triton", "conda:cuda-cudart", "conda:nccl"),
        *("conda:libcudnn", "conda:libmagma", "conda:libcublas", "conda:libcusparse"),
    }
    assert not {"conda:numpy", "conda:mkl", "conda:python", "conda:libgcc"} & set(unfit(report))


SPEC = """\
[project]
name = "demo"
version = "1"
[defaults]
python = ["3.12"]
lock = "pixi.lock"
base = "ubuntu:24.04"
[backend.cuda]
runtime = "12.9"
environment = "gpu"
[node-class.node]
backend = "cuda"
driver = "DRIVER"
"""


@pytest.mark.parametrize(
    ("packages", "driver", "found"),
    [
        ([package("cuda-version-12.9-h4f385c5_3")], "470.82.01", ["BM701 conda:cuda-version"]),
        ([package("cuda-version-12.9-h4f385c5_3")], "550.54", ["BM702 conda:cuda-version"]),
        ([package("cuda-version-12.9-h4f385c5_3")], "575.57.08", []),
        ([package(CUDA, "__cuda >=12.9")], "470.82.01", ["BM701 conda:__cuda"]),
        ([package(CUDA, "__cuda >=12.9")], "575.57.08", []),
        ([package(CUDA, "__cuda")], "470.82.01", []),
    ],
)
def test_a_node_class_needs_the_driver_that_a_lock_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: list[str], driver: str, found: list
) -> None:
    text = pixi([*PLAIN, *packages], {"gpu": range(len(PLAIN) + len(packages))})
    (tmp_path / "pixi.lock").write_text(text)
    (tmp_path / "buildmatrix.toml").write_text(SPEC.replace("DRIVER", driver))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        cli.main(
            [
                *("--no-progress", "audit", "--no-vulnerabilities"),
                *("--format=json", "--output=report.json"),
            ]
        )
    report = json.loads((tmp_path / "report.json").read_text())
    assert [item for item in failing(report) if item.startswith("BM70")] == found
