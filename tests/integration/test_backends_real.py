"""Backends beside the usual four, from `init --backend` to a verdict, with real wheels of PyPI.

Small images are built by the engine oci; an Ascend image by both engines, on a stand-in for its
base. What is too large to be built here is judged on the index, by ranges of its wheels.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from components import missing
from conftest import Buildmatrix, Run

pytestmark = [pytest.mark.network]

CUDA_WHEEL = "nvidia-cuda-runtime-cu12"
#: Written behind what `init` writes: each backend once as it is, and once with a foreign wheel.
SMUGGLED = """
[variant.plain]
[variant.smuggled]
requirements = ["smuggler.in"]
"""


@pytest.fixture(autouse=True)
def amd64() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("these wheels are for amd64")


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """A machine on which no Docker answers."""
    return {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}


def first_spec(
    buildmatrix: Buildmatrix, folder: Path, requirements: Mapping[str, str], smuggler: str
) -> Path:
    """A specification as `init --backend` writes it, for the Python of the stand-ins."""
    (folder / "requirements.in").write_text("")
    (folder / "smuggler.in").write_text(f"{smuggler}\n")
    names = ["requirements.in"]
    for backend, text in requirements.items():
        names.append(f"requirements-{backend}.in")
        (folder / names[-1]).write_text(f"{text}\n")
    options = [word for backend in requirements for word in ("--backend", backend)]
    run = buildmatrix(folder, "init", *options, *names)
    assert run.code == 0, run.err
    path = folder / "buildmatrix.toml"
    text = path.read_text()
    assert 'python = ["3.12"]' in text
    text = text.replace(
        'python = ["3.12"]', 'python = ["3.11"]\nvariant = ["plain", "smuggled"]', 1
    )
    path.write_text(text + SMUGGLED)
    return path


def outcome(run: Run, variant: str) -> dict[str, list[tuple[str, str]]]:
    """Target of the variant -> severity and distribution of what is more than a note about it."""
    report = run.report()
    findings: dict[str, list[tuple[str, str]]] = {
        target["id"]: [] for target in report["targets"] if f"-{variant}" in target["id"]
    }
    for finding in report["findings"]:
        if finding["target"] in findings and finding["severity"] != "note":
            subject = (finding["distribution"] or "").partition("==")[0]
            findings[finding["target"]].append((finding["severity"], subject))
    return findings


@pytest.mark.engine
@pytest.mark.usefixtures("engine")  # the registry of the base images
def test_images_are_clean_and_a_cuda_wheel_in_them_is_found(
    buildmatrix: Buildmatrix, tmp_path: Path, nowhere: dict[str, str]
) -> None:
    requirements = {"openvino": "openvino", "vulkan": "vulkan", "opencl": "pyopencl"}
    first_spec(buildmatrix, tmp_path, requirements, CUDA_WHEEL)
    arguments = ("build", "--engine", "oci", "--no-audit", "--format", "json")
    run = buildmatrix(tmp_path, *arguments, "--select", "*-plain", env=nowhere)
    assert run.code == 0, run.err
    assert outcome(run, "plain") == {f"{name}-py311-plain": [] for name in requirements}
    for target in run.report()["targets"]:
        assert {target["gates"][gate] for gate in ("lock", "build", "scan")} == {"passed"}

    # One image, all of them each week: the wheel is the same in each.
    which = "*-smuggled" if os.environ.get("BUILDMATRIX_WEEKLY") else "opencl-*-smuggled"
    run = buildmatrix(tmp_path, *arguments, "--select", which, env=nowhere)
    assert run.code == 1, run.err
    for target, findings in outcome(run, "smuggled").items():
        assert ("error", CUDA_WHEEL) in findings, target
        assert {subject for _, subject in findings} == {CUDA_WHEEL}, target


def test_what_is_too_large_to_build_is_clean_on_the_index_and_its_smuggler_is_not(
    buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    requirements = {
        "tpu": "jax[tpu]",
        "qnn": "onnxruntime-qnn",
        "openvino": "onnxruntime-openvino",
        # torch comes from PyPI: up to this release its wheels for Arm are builds for the CPU.
        "npu": "torch-npu==2.8.0\nonnxruntime-cann",
        "cuda": "tensorrt-cu13-bindings\nonnxruntime-gpu",
    }
    path = first_spec(buildmatrix, tmp_path, requirements, CUDA_WHEEL)
    (tmp_path / "foreign.in").write_text("intel-sycl-rt\n")
    text = path.read_text()
    text = text.replace("[backend.npu]", '[backend.npu]\nplatforms = ["linux/arm64"]')
    text = text.replace('torch = "cpu"\n', "")
    text = text.replace(
        '"12.8" = { full = "12.8.1", torch = "cu128" }', '"13.0" = { full = "13.0.2" }'
    ).replace('torch = "{runtime.torch}"\n', "")
    path.write_text(
        text + '[[override]]\nselect = "cuda*-smuggled"\nrequirements = ["foreign.in"]\n'
        'inherit = { requirements = "append" }\n'
    )
    lock = buildmatrix(tmp_path, "lock")
    assert lock.code == 0, lock.err
    run = buildmatrix(tmp_path, "audit", "--format", "json", "--select", "*-plain*")
    assert run.code == 0, run.err
    plain = outcome(run, "plain")
    assert len(plain) == len(requirements)
    # torch-npu imports yaml, and its metadata do not ask for it.
    assert {findings for target in plain.values() for findings in target} == {
        ("warning", "torch-npu")
    }

    run = buildmatrix(tmp_path, "audit", "--format", "json", "--select", "*-smuggled*")
    assert run.code == 1, run.err
    for target, findings in outcome(run, "smuggled").items():
        smuggler = "intel-sycl-rt" if target.startswith("cuda") else CUDA_WHEEL
        assert ("error", smuggler) in findings, target


# Ascend, on a base image that has what CANN's has

CANN = ("ascendcl", "hccl", "acl_op_compiler", "acl_tdt_channel", "ascend_protobuf", "atb")
CANN += ("fmk_parser", "ge_runner", "graph")
TOOLKIT = "/usr/local/Ascend/ascend-toolkit/latest/lib64"
BASE = "quay.io/ascend/cann:8.3.rc2-910b-ubuntu22.04-py3.11"
#: torch for CPUs is on PyTorch's own index alone: here the base image stands for it.
TORCH = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so")


@pytest.fixture
def cann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The stand-in, in the registry on loopback."""
    mirror = os.environ.get("BUILDMATRIX_MIRROR")
    if not mirror:
        missing("a registry on loopback", "run scripts/test, which starts one")
    if shutil.which("gcc") is None:
        missing("gcc", "install the package")
    folder = tmp_path_factory.mktemp("cann")
    for name in CANN:
        library = f"lib{name}.so"
        command = ["gcc", "-shared", "-nostdlib", "-o", library, f"-Wl,-soname,{library}"]
        subprocess.run([*command, "-xc", os.devnull], cwd=folder, check=True)
    (folder / "Dockerfile").write_text(
        f"FROM {mirror}python:3.11-slim-bookworm\nCOPY *.so {TOOLKIT}/\n"
        f"RUN groupadd --gid 1000 HwHiAiUser\nENV LD_LIBRARY_PATH={TOOLKIT}\n"
    )
    image = f"{mirror}{BASE}"
    try:
        for arguments in (("build", "--quiet", "--tag", image, str(folder)), ("push", image)):
            subprocess.run(["docker", *arguments], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True)


@pytest.mark.weekly  # test_oci_contents_real.py compares images of both engines path by path.
@pytest.mark.engine
@pytest.mark.usefixtures("engine", "cann")
def test_both_engines_make_the_same_ascend_image(
    buildmatrix: Buildmatrix, tmp_path: Path, nowhere: dict[str, str]
) -> None:
    path = first_spec(buildmatrix, tmp_path, {"npu": "torch-npu==2.13.0"}, CUDA_WHEEL)
    text = path.read_text().replace("[backend.npu]", '[backend.npu]\ndrop = ["torch"]')
    # The stand-ins define no symbol, and torch, which torch-npu imports, is left out.
    path.write_text(
        f"{text}[policy]\nallow-unresolved = {{ npu = {json.dumps(TORCH)} }}\n"
        '[policy.severity]\nBM305 = "note"\nBM502 = "note"\n'
    )
    settings, findings = {}, {}
    for engine, env in (("docker", {}), ("oci", nowhere)):
        archive = tmp_path / f"{engine}.tar"
        run = buildmatrix(
            tmp_path,
            *("build", "--engine", engine, "--no-audit", "--format", "json"),
            *("--select", "*-plain", "--save", str(archive)),
            env=env,
        )
        assert run.code == 0, run.err
        findings[engine] = outcome(run, "plain")
        settings[engine] = configuration(archive)
    assert findings["docker"] == findings["oci"] == {"npu8.3-py311-plain": []}
    for part in ("Env", "User", "Labels"):
        assert settings["docker"][part] == settings["oci"][part], part
    variables = dict(variable.split("=", 1) for variable in settings["oci"]["Env"])
    driver = "/usr/local/Ascend/driver/lib64"
    expected = [f"{driver}/driver", f"{driver}/common", driver, TOOLKIT]
    assert variables["LD_LIBRARY_PATH"].split(":") == expected


def configuration(archive: Path) -> dict[str, object]:
    """What an image in an archive says of how it runs."""
    import tarfile

    with tarfile.open(archive) as tar:

        def read(name: str) -> dict[str, object]:
            file = tar.extractfile(name)
            assert file is not None
            return json.load(file)

        manifest = read("manifest.json")
        return read(manifest[0]["Config"])["config"]  # type: ignore[index, return-value]
