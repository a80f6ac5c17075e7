"""BM706: the libraries that a framework really finds first."""

from __future__ import annotations

import pytest
from nodecases import on
from rulecases import SITE, codes, elf, file, image, of_image, only

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Binary, Inventory, PythonLoad

CUDNN = "libcudnn.so.9"


def torch(runpath: str = "$ORIGIN/../../nvidia/cudnn/lib") -> Binary:
    held = replace(elf("libtorch_cuda.so", [CUDNN]), runpath=(runpath,))
    return file("torch/lib/libtorch_cuda.so", held, "torch 2.8.0+cu128")


def cudnn(version: str) -> Binary:
    return file(f"nvidia/cudnn/lib/{CUDNN}", elf(CUDNN), f"nvidia-cudnn-cu12 {version}")


PINNED = {"torch": ["nvidia-cudnn-cu12==9.10.2.21; platform_system == 'Linux'"]}


def found(inventory: Inventory) -> list[str]:
    findings = of_image(on(runtime="12.8"), inventory)
    return [f"{item.rule} {item.severity}" for item in findings if item.rule == "BM706"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("9.1.0.70", ["BM706 error"]), ("9.10.2.21", []), ("9.19.0.56", [])],
)
def test_a_framework_and_the_cudnn_that_it_finds(version: str, expected: list[str]) -> None:
    assert found(image(torch(), cudnn(version), requires=PINNED)) == expected
    # Without pins the catalogue knows what torch 2.8 was built with.
    assert found(image(torch(), cudnn(version))) == expected


def test_the_library_of_the_base_is_found_before_that_of_the_wheel() -> None:
    old = file(f"usr/local/cudnn/{CUDNN}.1.0", elf(CUDNN))
    both = image(
        torch(),
        cudnn("9.10.2.21"),
        old,
        requires=PINNED,
        environment={"LD_LIBRARY_PATH": "/usr/local/cudnn"},
    )
    named = replace(
        both,
        binaries=tuple(
            replace(item, path=f"usr/local/cudnn/{CUDNN}") if item.path == old.path else item
            for item in both.binaries
        ),
        packaged={f"usr/local/cudnn/{CUDNN}": "libcudnn9-cuda-12 9.1.0.70-1"},
    )
    finding = only(of_image(on(runtime="12.8"), named), "BM706")
    assert "9.10.2.21" in finding.message and "libcudnn9-cuda-12" in finding.message
    assert finding.chain[-1] == f"usr/local/cudnn/{CUDNN}"
    # Nothing leads to the old one: the wheel's own is found.
    quiet = replace(named, environment={})
    assert found(quiet) == []


def test_a_runtime_that_is_older_than_the_local_version_says() -> None:
    held = replace(elf("libc10.so", ["libcudart.so.12"]), runpath=("$ORIGIN/../../nvidia/r/lib",))
    runtime = file("nvidia/r/lib/libcudart.so.12", elf("libcudart.so.12"),
                   "nvidia-cuda-runtime-cu12 12.4.127")  # fmt: skip
    binary = file("torch/lib/libc10.so", held, "torch 2.8.0+cu128")
    assert found(image(binary, runtime)) == ["BM706 warning"]
    newer = replace(runtime, owner="nvidia-cuda-runtime-cu12==12.9.79")
    assert found(image(binary, newer)) == []


def test_what_is_missing_or_of_another_line_is_said_by_others() -> None:
    assert found(image(torch(), requires=PINNED)) == []
    assert "BM302 torch" in codes(of_image(on(runtime="12.8"), image(torch())))
    assert SITE


# What opens its libraries by names that it puts together when it runs

JAX = {
    "jax-cuda12-plugin": [
        'nvidia-cudnn-cu12<10.0,>=9.8; sys_platform == "linux" and extra == "with-cuda"',
        'nvidia-nccl-cu12>=2.18.1; sys_platform == "linux" and extra == "with-cuda"',
    ]
}
JAX_FILE = file("jax_cuda12_plugin/_versions.so", elf(), "jax-cuda12-plugin 0.10.2")


@pytest.mark.parametrize(
    ("version", "expected"),
    [("9.1.0.70", ["BM706 error"]), ("9.8.0.87", []), ("9.19.0.56", []), ("8.9.2.26", [])],
)
def test_what_a_plugin_asks_for_and_opens_by_itself(version: str, expected: list[str]) -> None:
    assert found(image(JAX_FILE, cudnn(version), requires=JAX)) == expected
    # Nothing that its metadata asks for, nothing that can be too old.
    assert found(image(JAX_FILE, cudnn(version))) == []


def test_one_copy_that_is_new_enough_may_be_the_one_that_is_opened() -> None:
    base = file(f"usr/local/cudnn/{CUDNN}.1.0", elf(CUDNN))
    packaged = {base.path: "libcudnn9-cuda-12 9.1.0.70-1"}
    alone = replace(image(JAX_FILE, base, requires=JAX), packaged=packaged)
    finding = only(of_image(on(runtime="12.8"), alone), "BM706")
    assert "nvidia-cudnn-cu12>=9.8" in finding.message and finding.path == base.path
    both = replace(image(JAX_FILE, base, cudnn("9.10.2.21"), requires=JAX), packaged=packaged)
    assert found(both) == []
    # A copy of which nothing says the version may be new enough, too.
    unsaid = file(f"usr/local/cudnn/{CUDNN}", elf(CUDNN))
    assert found(image(JAX_FILE, unsaid, requires=JAX)) == []


def test_an_older_nccl_is_a_warning_and_the_line_that_asks_for_least_counts() -> None:
    nccl = file("nvidia/nccl/lib/libnccl.so.2", elf("libnccl.so.2"), "nvidia-nccl-cu12 2.17.1")
    assert found(image(JAX_FILE, nccl, requires=JAX)) == ["BM706 warning"]
    lines = [*JAX["jax-cuda12-plugin"], "nvidia-nccl-cu12>=2.17; python_version < '3.11'"]
    assert found(image(JAX_FILE, nccl, requires={"jax-cuda12-plugin": lines})) == []


def test_a_linked_library_is_judged_by_where_the_loader_leads() -> None:
    asks = {"torch": ["nvidia-cudnn-cu12>=9.8"]}
    old = file(f"other/lib/{CUDNN}", elf(CUDNN), "nvidia-cudnn-cu12 9.1.0.70")
    assert found(image(torch(), cudnn("9.1.0.70"), requires=asks)) == ["BM706 error"]
    assert found(image(torch("$ORIGIN/../../other/lib"), old, requires=asks)) == ["BM706 error"]


NCCL = "libnccl.so.2"


@pytest.mark.parametrize(
    ("literal", "runpath", "path_of_base", "preload", "expected"),
    [
        # The system's is in a default folder, the wheel's on no search path.
        (NCCL, "", "usr/lib/x86_64-linux-gnu", None, ["BM706 warning"]),
        # The file that opens it has the wheel's folder as its search path.
        (NCCL, "$ORIGIN/../nvidia/nccl/lib", "usr/lib/x86_64-linux-gnu", None, []),
        (NCCL, "", "opt/hpc/lib", None, []),
        ("", "", "usr/lib/x86_64-linux-gnu", None, []),
        # Python loads the wheel's by its path, and the name leads to that one.
        (NCCL, "", "usr/lib/x86_64-linux-gnu", "*/nvidia/nccl/lib/libnccl.so.2", []),
        # ctypes by the name alone.
        ("", "", "usr/lib/x86_64-linux-gnu", NCCL, ["BM706 warning"]),
        ("", "", "opt/hpc/lib", NCCL, []),
    ],
)
def test_a_library_that_is_opened_by_its_name_is_the_one_that_the_loader_finds(
    literal: str, runpath: str, path_of_base: str, preload: str | None, expected: list[str]
) -> None:
    old = file(f"{path_of_base}/{NCCL}", elf(NCCL))
    new = file(f"nvidia/nccl/lib/{NCCL}", elf(NCCL), "nvidia-nccl-cu12 2.27.3")
    facts = elf(None, literals=[literal] if literal else [])
    plugin = file(
        "jax_cuda12_plugin/_c.so",
        replace(facts, runpath=(runpath,) if runpath else ()),
        "jax-cuda12-plugin 0.10.2",
    )
    load = PythonLoad("p.py", 1, "CDLL", (preload or "",), "import", plugin.owner)
    tree = replace(
        image(plugin, old, new, requires=JAX),
        packaged={old.path: "libnccl2 2.17.1-1"},
        python_loads=(load,) if preload else (),
    )
    assert found(tree) == expected
    if expected:
        finding = only(of_image(on(runtime="12.8"), tree), "BM706")
        assert f"what it opens by its name is {old.path} of libnccl2 2.17.1-1" in finding.message


@pytest.mark.parametrize(
    ("jaxlib", "expected"),
    [
        ("0.10.1", ["BM706 error"]),
        ("0.10.2", []),
        ("0.10.2.dev20260101", []),
        ("0.11.0", ["BM706 error"]),
    ],
)
def test_a_plugin_beside_another_version(jaxlib: str, expected: list[str]) -> None:
    assert found(image(JAX_FILE, installed=[f"jaxlib {jaxlib}"])) == expected
    # A plugin of another vendor has releases of its own.
    other = file("jax_rocm7_plugin/_versions.so", elf(), "jax-rocm7-plugin 0.10.2")
    assert found(image(other, installed=[f"jaxlib {jaxlib}"])) == []


def test_a_plugin_without_what_it_plugs_into() -> None:
    assert found(image(JAX_FILE)) == []


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-cudnn-cu12",
        "nvidia-cudnn-cu12<10",
        "nvidia-cudnn-cu12===newest",
        "nvidia-cudnn-cu12>=" + "9" * 5000,
        "not a requirement >=",
    ],
)
def test_metadata_that_asks_for_nothing_that_can_be_compared(line: str) -> None:
    requires = {"jax-cuda12-plugin": [line]}
    assert found(image(JAX_FILE, cudnn("9.1.0.70"), requires=requires)) == []


@pytest.mark.parametrize(
    ("version", "expected"),
    [("9.1.0.70-1", ["BM706 error"]), ("9.8.0.87-1", []), ("9.12.0.46-1", [])],
)
def test_a_linked_library_of_the_base_without_any_wheel_of_it(
    version: str, expected: list[str]
) -> None:
    base = file(f"usr/lib/x86_64-linux-gnu/{CUDNN}", elf(CUDNN))
    provider = file(
        "onnxruntime/capi/libonnxruntime_providers_cuda.so",
        elf(None, [CUDNN]),
        "onnxruntime-gpu 1.22.0",
    )
    requires = {"onnxruntime-gpu": ["nvidia-cudnn-cu12~=9.8; extra == 'cudnn'"]}
    packaged = {base.path: f"libcudnn9-cuda-12 {version}"}
    inventory = replace(image(provider, base, requires=requires), packaged=packaged)
    assert found(inventory) == expected


@pytest.mark.parametrize(
    ("version", "expected"), [("8.9.2.26-1", []), ("8.6.0.163-1", ["BM706 error"])]
)
def test_a_pin_names_a_release_and_another_patch_of_the_base_is_enough(
    version: str, expected: list[str]
) -> None:
    base = file("usr/lib/x86_64-linux-gnu/libcudnn.so.8", elf("libcudnn.so.8"))
    framework = file("tensorflow/libtensorflow_cc.so.2", elf(), "tensorflow 2.15.0")
    requires = {"tensorflow": ["nvidia-cudnn-cu12==8.9.4.25; extra == 'and-cuda'"]}
    packaged = {base.path: f"libcudnn8 {version}"}
    inventory = replace(image(framework, base, requires=requires), packaged=packaged)
    assert found(inventory) == expected
