"""A name, a version or a folder is a hypothesis: the public file proves it, or the bytes do."""

from __future__ import annotations

import pytest
from auditcases import closed, gained, opened, subject
from rulecases import codes, elf, file, image, of_image, of_lock, only, pin, sass, target

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.judge.judging import judge_image, judge_wheels
from buildmatrix.judge.locks import Wheels
from buildmatrix.judge.model import Finding, Verdict
from buildmatrix.matrix.model import Policy, Target

CPU, ROCM, CUDA = target("cpu"), target("rocm", "6.4"), target("cuda", "12.8")
OWN = "packages.example.com"
HOST_CODE = elf(needed=["libc.so.6"])


def judgement(where: Target, inventory) -> tuple[dict[str, Verdict], tuple[Finding, ...]]:
    seen = evidence(inventory, load())
    said = judge_image(where, inventory, seen, None, load(), Policy())
    return {one.name: one for one in said.verdicts}, said.findings


def verdicts_of(read: Wheels) -> dict[str, Verdict]:
    return {one.name: one for one in judge_wheels(read).verdicts}


@pytest.mark.parametrize("where", [CPU, ROCM])
@pytest.mark.parametrize("line", ["torch 2.11.0", "triton 3.6.0", "torchaudio 2.11", "vllm 0.33.0"])
def test_a_public_name_on_another_index_says_nothing_before_it_was_read(
    where: Target, line: str
) -> None:
    assert of_lock(where, pin(line, host=OWN)) == ()
    assert codes(of_lock(CPU, pin(line))) != []


def test_what_came_with_it_proves_a_default_build_on_any_index() -> None:
    pins = pin("torch 2.11.0", host=OWN), pin("nvidia-nccl-cu13 2", "torch", host=OWN)
    assert codes(of_lock(CPU, *pins), "error") == ["BM101 nvidia-nccl-cu13", "BM104 torch"]


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0+cu128"])
@pytest.mark.parametrize("where", [CPU, ROCM])
def test_bytes_without_cuda_win_over_name_and_version_in_silence(
    where: Target, version: str
) -> None:
    owner = f"torch {version}"
    files = opened("torch/lib/libtorch_cpu.so", HOST_CODE, owner, 190_000_000)
    read = subject(where, pin(owner, host=OWN), files=[files])
    said = judge_wheels(read)
    assert said.findings == ()
    assert [(one.verdict, one.certain) for one in said.verdicts] == [("ok", True)]
    installed = image(file("torch/lib/libtorch_cpu.so", HOST_CODE, owner, 190_000_000))
    assert of_image(where, installed) == ()


def test_a_pure_wheel_with_the_label_of_a_backend_is_not_for_it_alone() -> None:
    assert (
        of_image(CPU, image(installed=["torchtune 0.6.1+cu126"], sizes={"torchtune": 900_000}))
        == ()
    )
    assert codes(of_lock(CPU, pin("torchtune 0.6.1+cu126"))) == ["BM102 torchtune"]


def test_bytes_that_agree_keep_the_finding() -> None:
    files = file("torch/lib/libtorch_cuda.so", elf("libtorch_cuda.so"), "torch 2.11.0")
    assert "BM104 torch" in codes(of_image(CPU, image(files)))
    read = subject(
        CPU,
        pin("torch 2.11.0", host=OWN),
        files=[closed("torch/lib/libtorch_cuda.so", "torch 2.11.0", 900_000_000)],
    )
    assert "BM104 torch" in codes(judge_wheels(read).findings)


# The statement of a name is about one platform, and about no toolkit line


def test_a_default_build_is_looked_into_for_its_toolkit_line() -> None:
    audio, torch = pin("torchaudio 2.11.0"), pin("torch 2.8.0")
    path, owner = "torchaudio/lib/_torchaudio.abi3.so", "torchaudio 2.11.0"
    cu12 = pin("nvidia-cuda-runtime-cu12 12.8.90", "torch")
    listed = subject(
        CUDA,
        *(audio, torch, cu12),
        files=[closed(path, owner), closed("torch/lib/libtorch_cuda.so", "torch 2.8.0")],
        requires={"torch": ["nvidia-cuda-runtime-cu12"]},
    )
    # What torch requires says its line already.
    assert gained(listed) == {"torchaudio==2.11.0": "verdict", "torch==2.8.0": "detail"}
    read = subject(
        CUDA, audio, torch, cu12, files=[opened(path, elf(needed=["libcudart.so.13"]), owner)]
    )
    assert verdicts_of(read)["torchaudio"].verdict == "broken"
    fits = subject(CUDA, audio, files=[opened(path, elf(needed=["libcudart.so.12"]), owner)])
    assert verdicts_of(fits)["torchaudio"].verdict == "ok"
    assert gained(fits) == {}


def test_a_rebuilt_wheel_of_the_own_backend_is_looked_into_until_its_files_say_so() -> None:
    owner = "nvidia-cublas-cu12 12.8.4.1"
    for host, name, expected in (
        ("files.pythonhosted.org", "libother.so", "detail"),
        (OWN, "libother.so", "verdict"),
        (OWN, "libcublas.so.12", "detail"),
    ):
        files = [closed(f"nvidia/cublas/lib/{name}", owner, 500_000_000)]
        read = subject(CUDA, pin(owner, host=host), files=files)
        assert gained(read) == {owner.replace(" ", "=="): expected}, (host, name)


ARM = {name: target(name, "12.8" if name == "cuda" else "any", platform="linux/arm64")
       for name in ("cuda", "cpu")}  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "path", "severity"),
    [
        ("torch 2.8.0", "torch/lib/libtorch_cpu.so", "error"),
        ("tensorflow 2.19.0", "tensorflow/libtensorflow_cc.so.2", "warning"),
        ("ctranslate2 4.4.0", "ctranslate2.libs/libctranslate2.so.4", "warning"),
    ],
)
def test_what_was_said_of_amd64_is_not_said_of_arm64(owner: str, path: str, severity: str) -> None:
    name = owner.split()[0]
    tree = image(file(path, HOST_CODE, owner, 100_000_000))
    verdicts, findings = judgement(ARM["cuda"], tree)
    finding = only(findings, "BM104")
    assert (finding.severity, finding.distribution) == (severity, name)
    assert "holds nothing for NVIDIA CUDA" in finding.message
    assert verdicts[name].verdict == "optional"
    verdicts, findings = judgement(ARM["cpu"], tree)
    assert findings == () and verdicts[name].verdict == "ok"
    # The same build with CUDA in it is at home.
    cuda = image(file(path, elf(device_code=sass("sm_90")), owner, 100_000_000))
    assert judgement(ARM["cuda"], cuda)[1] == ()
    assert of_lock(ARM["cpu"], pin(owner)) == ()
    # Not all of it was read: a build for CUDA may hold its code anywhere.
    partly = subject(ARM["cuda"], pin(owner), files=[closed(path, owner, 100_000_000)])
    assert judge_wheels(partly).findings == ()
    assert gained(partly) == {owner.replace(" ", "=="): "verdict"}


def test_newer_builds_for_arm64_are_for_cuda_as_the_index_has_them() -> None:
    assert codes(of_lock(ARM["cpu"], pin("torch 2.12.0"))) == ["BM104 torch"]
    assert codes(of_lock(CPU, pin("torchcodec 0.9.0"), pin("torchcodec 0.17.0"))) == [
        "BM104 torchcodec"
    ]
