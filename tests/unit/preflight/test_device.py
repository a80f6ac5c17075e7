"""The rung `device`, with a real interpreter and frameworks that answer as they do, or break."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from pathlib import Path

import pytest
from probing import install, runner, torch

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import Catalogue, Owned, load
from buildmatrix.engines.model import RunResult
from buildmatrix.preflight.rungs import EACH_S, find_instruction_level, judge_devices, run_devices
from buildmatrix.reports.preflight import Check, state_of

#: Seconds until a test that waits for ever fails.
PATIENCE = 300


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site-packages"


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """A folder of this test that stands for /dev."""
    (tmp_path / "dev").mkdir()
    return tmp_path / "dev"


@pytest.fixture
def catalogue(nodes: Path) -> Catalogue:
    """The catalogue, but for where CUDA's device nodes are."""
    known = load()
    hosts = tuple(
        Owned(
            _moved(owned.entry, nodes) if owned.backend == "cuda" else owned.entry,
            owned.backend,
            owned.vendor,
            owned.glob,
        )
        for owned in known.hosts
    )
    return replace(known, hosts=hosts)


def _moved(entry, nodes: Path):
    import msgspec

    return msgspec.structs.replace(
        entry, nodes=(f"{nodes}/nvidia[0-9]*",), needs=(f"{nodes}/nvidiactl",), version_files=()
    )


def asked(
    site: Path, catalogue: Catalogue, backend: str = "cuda", **variables: str
) -> tuple[Mapping[str, Check], str]:
    run = runner(site, site.with_name("end"), **variables)
    checks, why = run_devices(run, backend, catalogue, None)
    return {check.subject: check for check in checks}, why


def devices_of(nodes: Path) -> None:
    (nodes / "nvidia0").touch()
    (nodes / "nvidiactl").touch()


def test_each_device_of_a_framework_is_a_check(
    site: Path, catalogue: Catalogue, nodes: Path
) -> None:
    devices_of(nodes)
    install(site, "torch", torch("12.8", count=2))
    checks, why = asked(site, catalogue)
    assert {name: check.state for name, check in checks.items()} == {
        "machine": "passed",
        "torch cuda:0": "passed",
        "torch cuda:1": "passed",
    }
    values = checks["torch cuda:1"].values
    assert (values["version"], values["build"], values["kind"]) == ("2.13.0", "cuda 12.8", "cuda")
    assert (checks["torch cuda:1"].message, values["memory_bytes"]) == ("ACME 100", 80 << 30)
    assert why == ""


def test_a_framework_that_goes_on_with_the_cpu_has_failed_and_says_why(
    site: Path, catalogue: Catalogue, nodes: Path
) -> None:
    devices_of(nodes)
    install(site, "torch", torch("12.8", zeros="raise RuntimeError('driver too old')"))
    checks, _ = asked(site, catalogue, CUDA_VISIBLE_DEVICES="")
    assert checks["torch"].state == "failed"
    assert checks["torch"].message == (
        "torch 2.13.0 (cuda 12.8) has cpu and no device of cuda: "
        "RuntimeError: driver too old; CUDA_VISIBLE_DEVICES="
    )


def test_a_build_for_cuda_without_a_device_does_not_pass(site: Path, catalogue: Catalogue) -> None:
    install(site, "torch", torch("12.8", zeros="raise RuntimeError('no driver')"))
    checks, why = asked(site, catalogue)
    assert state_of(tuple(checks.values())) == "not-run"
    assert "no device of cuda is visible here" in why
    assert "no driver" in checks["torch"].message


@pytest.mark.parametrize(
    ("build", "libraries", "has_torch", "state"),
    [
        ("CPU", (), True, "not-run"),
        ("GPU", (), True, "failed"),
        ("CPU", ("/usr/local/cuda/lib64/libcudart.so.12",), True, "failed"),
        # Nothing uses the devices: the image goes on with the CPU.
        ("CPU", (), False, "failed"),
    ],
)
def test_a_cpu_build_beside_a_framework_with_devices_fails_nothing(
    build: str, libraries: tuple[str, ...], has_torch: bool, state: str, catalogue: Catalogue
) -> None:
    """chromadb and others require `onnxruntime`, the distribution for the CPU."""
    cpu = {"ids": ["CPUExecutionProvider"], "kinds": ["CPUExecutionProvider"], "names": [""]}
    seen = [
        Check("machine", "passed", values={"nodes": ["/dev/nvidia0"], "drivers": ["580.1"]}),
        Check("onnxruntime", "passed", values={**cpu, "build": build, "libraries": [*libraries]}),
    ]
    if has_torch:
        gpu = {"ids": ["cuda:0"], "kinds": ["cuda"], "names": ["H100"], "build": "cuda 12.8"}
        seen.append(Check("torch", "passed", values=gpu))
    names = ["onnxruntime", "torch"][: 1 + has_torch]
    checks, _ = judge_devices(seen, names, "cuda", catalogue, None)
    (found,) = [check for check in checks if check.subject == "onnxruntime"]
    assert found.state == state
    assert state_of(checks) == ("passed" if state == "not-run" else "failed")


def test_what_hip_calls_cuda_is_no_device_of_cuda(
    site: Path, catalogue: Catalogue, nodes: Path
) -> None:
    devices_of(nodes)
    install(site, "torch", torch(None, count=1).replace("hip = None", "hip = '6.4'"))
    checks, _ = asked(site, catalogue)
    assert checks["torch"].message == "torch 2.13.0 (hip 6.4) has hip, cpu and no device of cuda"


def test_a_node_that_programs_need_beside_the_device_is_missed(
    site: Path, catalogue: Catalogue, nodes: Path
) -> None:
    (nodes / "nvidia0").touch()
    checks, _ = asked(site, catalogue)
    assert checks["machine"].state == "failed"
    assert "nvidiactl: missing beside the devices" in checks["machine"].message


def test_of_backends_whose_nodes_nobody_knows_the_frameworks_alone_tell(
    site: Path, catalogue: Catalogue
) -> None:
    install(site, "openvino", "__version__ = '1'\nclass Core:\n    available_devices = []\n")
    checks, why = asked(site, catalogue, "openvino")
    assert why == "no framework here sees a device of openvino"
    assert state_of(tuple(checks.values())) == "not-run"


def test_a_framework_that_has_no_such_devices_is_no_verdict(
    site: Path, catalogue: Catalogue, nodes: Path
) -> None:
    devices_of(nodes)
    install(site, "openvino", "__version__ = '1'\nclass Core:\n    available_devices = []\n")
    checks, _ = asked(site, catalogue)
    assert checks["openvino"].state == "not-run"
    assert state_of(tuple(checks.values())) == "passed"


def test_the_cpu_is_the_device_of_the_cpu(site: Path, catalogue: Catalogue) -> None:
    install(site, "torch", torch())
    checks, why = asked(site, catalogue, "cpu")
    assert (checks["cpu"].state, checks["torch cpu"].state, why) == ("passed", "passed", "")


V3 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("", "x86-64"),
        (V3, "x86-64-v3"),
        (V3.replace("avx2", ""), "x86-64-v2"),
        (V3 + " avx512f avx512bw avx512cd avx512dq avx512vl", "x86-64-v4"),
    ],
)
def test_levels_of_a_processor(flags: str, level: str) -> None:
    assert find_instruction_level(flags.split()) == level


BREAKING = {
    "hangs": ("import time\nopen({end!r}, 'w')\ntime.sleep(1000)", f"took more than {EACH_S} s"),
    "dies": ("import os\nos.kill(os.getpid(), 11)", "died by SIGSEGV"),
    "raises": ("raise ImportError('libacme.so.7: cannot open')", "ImportError: libacme.so.7"),
    "leaves": (
        "import os\nos.write(1, b'bye')\nos._exit(0)",
        "asking it for its devices ended before it was done: bye",
    ),
    "floods": ("import os\nfor _ in range(160): os.write(1, b'x' * 65536)\n1/0", "exit code 1"),
    "lies": ('print(\'@@buildmatrix-0@@{"subject": "torch cuda:0"}\')\n1/0', "ZeroDivisionError"),
    "ends": ("import sys\nsys.exit('no license')", "no license"),
}


@pytest.mark.parametrize("how", BREAKING)
def test_a_framework_that_breaks_is_named_and_costs_no_other(
    site: Path, catalogue: Catalogue, nodes: Path, how: str
) -> None:
    source, words = BREAKING[how]
    devices_of(nodes)
    install(site, "torch", source.replace("{end!r}", repr(str(site.with_name("end")))))
    install(site, "openvino", "__version__ = '1'\nclass Core:\n    available_devices = []\n")
    checks, _ = asked(site, catalogue)
    assert checks["torch"].state == "failed"
    assert words in checks["torch"].message
    assert checks["openvino"].state == "not-run"


def test_what_a_framework_forks_ends_with_it(
    site: Path, catalogue: Catalogue, nodes: Path, tmp_path: Path
) -> None:
    devices_of(nodes)
    pid_file = tmp_path / "pid"
    source = f"""
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)
    open({str(pid_file)!r}, 'w').write(str(os.getpid()))
    time.sleep(1000)
while not os.path.exists({str(pid_file)!r}) or not os.path.getsize({str(pid_file)!r}):
    time.sleep(0.01)
"""
    install(site, "torch", source + torch("12.8", count=1))
    checks, _ = asked(site, catalogue)
    assert checks["torch cuda:0"].state == "passed"
    assert _ended(int(pid_file.read_text()))


def _ended(pid: int) -> bool:
    """Wait for the end of a process, which need not be a child."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], PATIENCE)[0])
    finally:
        os.close(process)


def test_an_image_without_python_is_undecided(catalogue: Catalogue) -> None:
    lost = RunResult(127, "python: not found", timed_out=False)
    (check,) = run_devices(lambda *_: lost, "cuda", catalogue, None)[0]
    assert check.state == "undecided" and "exit code 127" in check.message


def test_a_framework_that_the_probe_did_not_get_to_is_not_lost(catalogue: Catalogue) -> None:
    seen = (Check("machine", "passed", values={"nodes": ["/dev/nvidia0"]}),)
    checks, _ = judge_devices(seen, ["torch"], "cuda", catalogue, None)
    assert state_of(checks) == "undecided"


@pytest.mark.parametrize("value", ["x", 1, None, [1.0], {"a": 1.0}])
def test_answers_of_another_shape_are_borne(catalogue: Catalogue, value: object) -> None:
    seen = (
        Check(
            "machine", "passed", values=dict.fromkeys(("nodes", "drivers", "environment"), value)
        ),  # type: ignore[arg-type]
        Check("torch", "passed", values=dict.fromkeys(("ids", "kinds", "names", "version"), value)),  # type: ignore[arg-type]
    )
    for backend in ("cuda", "cpu", "opencl"):
        assert judge_devices(seen, (), backend, catalogue, None)[0]
