"""Verdicts per distribution and backend; shapes of wheels are from docs/incidents.md, part C."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rulecases import SITE, codes, elf, file, hip, image, of_image, only, sass, target, verdict

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.elf.model import DeviceCode
from buildmatrix.facts.inventory.model import (
    Binary,
    Distribution,
    Inventory,
    PythonImport,
    PythonLoad,
)
from buildmatrix.facts.python_imports import Reach
from buildmatrix.judge.judging import judge_image
from buildmatrix.matrix.model import Policy


def reached(binary: Binary, how: Reach) -> Binary:
    return replace(binary, reach=how)


def opens(tree: Inventory, names: Sequence[str], owner: str, reach: Reach) -> Inventory:
    """`tree` with a call of `CDLL` in the Python code of `owner`."""
    call = PythonLoad(
        f"{SITE}/demo/_lib.py",
        12,
        "CDLL",
        tuple(names),
        reach=reach,
        owner=owner.replace(" ", "=="),
    )
    return replace(tree, python_loads=(call,))


def test_xgboost_is_bloat_on_cpu_and_fine_on_cuda() -> None:
    tree = image(
        file("xgboost/lib/libxgboost.so", elf(device_code=sass("sm_75")), "xgboost 3.4.1"),
        requires={"xgboost": ["numpy", 'nvidia-nccl-cu13; platform_system == "Linux"']},
        root=False,
    )
    one = verdict("cpu", tree, "xgboost")
    assert one.verdict == "bloat"
    assert one.foreign_bytes == 48_000_000
    assert one.architectures == {"nvidia": ("sm_75",)}
    assert verdict("cuda", tree, "xgboost").verdict == "ok"


def test_a_wheel_for_many_backends_is_bloat_and_not_broken_bitsandbytes() -> None:
    owner = "bitsandbytes 0.50.2"
    tree = image(
        file("bitsandbytes/libbitsandbytes_cpu.so", elf(), owner),
        file(
            "bitsandbytes/libbitsandbytes_cuda130.so",
            elf(needed=["libcudart.so.13"], device_code=sass("sm_120")),
            owner,
        ),
    )
    assert verdict("rocm", tree, "bitsandbytes").verdict == "bloat"


def test_an_import_that_misses_a_foreign_library_is_broken() -> None:
    tree = image(
        file("lmcache/c_ops.abi3.so", elf(needed=["libcudart.so.13"]), "lmcache 0.5.6"),
        installed=["torch 2.9.0+rocm6.4"],
    )
    one = verdict("rocm", tree, "lmcache")
    assert one.verdict == "broken"
    assert "libcudart.so.13" in one.reason


def test_an_import_that_finds_its_foreign_library_is_bloat_and_not_broken() -> None:
    tree = image(
        file("demo/_C.abi3.so", elf(needed=["libcudart.so.13"]), "demo 1"),
        file("usr/lib/libcudart.so.13", elf("libcudart.so.13")),
    )
    one = verdict("rocm", tree, "demo")
    assert one.verdict == "bloat"
    assert "loads libcudart.so.13 of NVIDIA CUDA, which is there" in one.reason


def test_what_a_single_wheel_requires_is_not_missing_yet() -> None:
    tree = image(
        file("dpctl/_C.abi3.so", elf(needed=["libsycl.so.9"]), "dpctl 0.22.1"),
        requires={"dpctl": ["intel-sycl-rt"]},
        root=False,
    )
    assert verdict("cpu", tree, "dpctl").verdict == "bloat"
    assert verdict("oneapi", tree, "dpctl").verdict == "ok"


def test_a_few_foreign_bytes_are_optional() -> None:
    tree = image(file("demo/_C.abi3.so", elf(device_code=sass("sm_80", size=100_000)), "demo 1"))
    assert verdict("cpu", tree, "demo").verdict == "optional"


def test_a_name_for_dlopen_is_optional() -> None:
    tree = image(file("demo/_C.abi3.so", elf(literals=["libcuda.so.1"]), "demo 1"))
    assert verdict("cpu", tree, "demo").verdict == "optional"


def test_a_bundled_loader_is_named_once() -> None:
    name = "libOpenCL-5519dec5.so.1.0.0"
    tree = image(
        file("demo/_cl.abi3.so", elf(needed=[name]), "demo 1"),
        file(f"demo.libs/{name}", elf(name), "demo 1"),
    )
    reason = verdict("cpu", tree, "demo").reason
    assert reason == f"it reaches for {name} (libOpenCL.so.1.0.0) when asked to"


def test_a_vendors_own_distribution_is_bloat_elsewhere_whatever_its_size() -> None:
    tree = image(
        installed=["nvidia-cuda-runtime-cu12 12.9.79"], sizes={"nvidia-cuda-runtime-cu12": 9_600}
    )
    assert verdict("rocm", tree, "nvidia-cuda-runtime-cu12").verdict == "bloat"


def test_requirements_behind_extras_and_other_platforms_do_not_count() -> None:
    tree = image(
        installed=["tensorflow-cpu 2.21.0"],
        requires={
            "tensorflow-cpu": [
                'nvidia-cublas-cu12; extra == "and-cuda"',
                'nvidia-nccl-cu12; sys_platform == "win32"',
                "this is not a valid requirement !!",
            ]
        },
        root=False,
    )
    assert verdict("cpu", tree, "tensorflow-cpu").verdict == "ok"


def test_a_requirement_for_torch_is_judged_by_the_torch_that_is_installed() -> None:
    requires = {"demo": ["torch>=2"]}
    clean = image(installed=["demo 1", "torch 2.9.0+cpu"], requires=requires)
    smuggled = image(installed=["demo 1", "torch 2.9.0"], requires=requires)
    assert verdict("cpu", clean, "demo").verdict == "ok"
    assert verdict("cpu", smuggled, "demo").verdict == "bloat"


def test_an_import_that_survives_without_the_foreign_library_is_optional() -> None:
    extension = file("torchao/_C.abi3.so", elf(needed=["libcudart.so.13"]), "torchao 0.18.0")
    for how in ("guarded", "lazy"):
        tree = image(reached(extension, how))
        assert verdict("cpu", tree, "torchao").verdict == "optional"
    assert verdict("cpu", image(reached(extension, "import")), "torchao").verdict == "broken"


def test_an_extension_that_no_python_code_names_is_not_imported_where_others_are_named() -> None:
    tree = image(
        reached(file("cupy/_core.abi3.so", elf(), "demo 1"), "import"),
        file("cupy/cufft.abi3.so", elf(needed=["libcufft.so.11"]), "demo 1"),
    )
    assert verdict("cpu", tree, "demo").verdict == "optional"


def test_what_an_imported_extension_links_is_imported_too() -> None:
    owner = "tensorflow-rocm 2.14"
    tree = image(
        reached(file("tf/_pywrap.so", elf(needed=["libtf_cc.so.2"]), owner), "import"),
        file("tf/libtf_cc.so.2", elf("libtf_cc.so.2", needed=["libamdhip64.so.6"]), owner),
        root=False,
    )
    one = verdict("cpu", tree, "tensorflow-rocm")
    assert one.verdict == "broken"
    assert "libamdhip64.so.6" in one.reason
    assert verdict("rocm", tree, "tensorflow-rocm").verdict == "ok"


def test_a_library_that_python_code_opens_on_import_breaks_it_where_it_is_missing() -> None:
    names = ["/opt/rocm/lib/libamd_smi.so", "libamd_smi.so"]
    tree = opens(image(installed=["amdsmi 7.0.2"]), names, "amdsmi 7.0.2", "import")
    one = verdict("cpu", tree, "amdsmi")
    assert one.verdict == "broken"
    assert "libamd_smi.so (usr/lib/python3.11/site-packages/demo/_lib.py:12)" in one.reason
    assert verdict("rocm", tree, "amdsmi").verdict == "ok"


def test_a_library_that_python_code_opens_on_import_and_finds_breaks_nothing() -> None:
    there = image(
        file("usr/lib/libamd_smi.so", elf("libamd_smi.so.26")), installed=["amdsmi 7.0.2"]
    )
    tree = opens(there, ["libamd_smi.so"], "amdsmi 7.0.2", "import")
    assert verdict("cpu", tree, "amdsmi").verdict == "bloat"


def test_a_library_that_python_code_opens_when_asked_to_is_optional() -> None:
    for how in ("guarded", "lazy"):
        tree = opens(image(installed=["demo 1"]), ["libcuda.so.1"], "demo 1", how)
        assert verdict("cpu", tree, "demo").verdict == "optional"


def test_computed_names_are_dormant() -> None:
    names = ["*/cublas/lib/libcublas.so.*"]
    tree = opens(image(installed=["torch 2.13.0+cpu"]), names, "torch 2.13.0+cpu", "lazy")
    assert verdict("cpu", tree, "torch").verdict == "ok"


def test_a_requirement_supplies_the_libraries_of_its_own_vendor_only() -> None:
    tree = image(
        file("torch_npu/_C.abi3.so", elf(needed=["libascendcl.so"]), "torch-npu 2.14.0"),
        requires={"torch-npu": ["torch==2.14.0"]},
        root=False,
    )
    assert verdict("cpu", tree, "torch-npu").verdict == "broken"


def test_a_wheel_alone_does_not_say_which_torch_it_will_meet() -> None:
    requires = {"demo": ["torch>=2", 'nvidia-ml-py; sys_platform == "linux"']}
    assert verdict("cpu", image(installed=["demo 1"], requires=requires), "demo").verdict == "ok"


def test_an_empty_meta_package_is_no_burden_and_its_extras_are() -> None:
    def judged(line: str) -> str:
        tree = image(installed=["demo 1"], requires={"demo": [line]}, root=False)
        return verdict("cpu", tree, "demo").verdict

    assert judged("cuda-toolkit==13.*") == "ok"
    assert judged("cuda-toolkit[cublas]==13.*") == "bloat"


def test_what_can_use_other_backends_too_makes_its_users_optional() -> None:
    tree = image(installed=["demo 1"], requires={"demo": ["onnxruntime-gpu"]}, root=False)
    assert verdict("cpu", tree, "demo").verdict == "optional"
    assert verdict("cuda", tree, "demo").verdict == "ok"


def test_a_plugin_beside_the_cpu_code_is_optional_although_the_name_is_a_vendors() -> None:
    tree = image(
        file(
            "onnxruntime/capi/libonnxruntime_providers_migraphx.so",
            elf(needed=["libamdhip64.so.7"]),
            "onnxruntime-migraphx 1.27.1",
        )
    )
    assert verdict("cpu", tree, "onnxruntime-migraphx").verdict == "optional"
    assert verdict("rocm", tree, "onnxruntime-migraphx").verdict == "ok"


def test_a_little_of_another_vendors_is_no_matter_on_the_own_backend() -> None:
    owner = "triton 3.9.0"
    tree = image(
        file("triton/amd.so", elf(device_code=hip("gfx942", size=900_000)), owner),
        file("triton/ptxas", elf(), owner, size=90_000_000),
    )
    assert verdict("cuda", tree, "triton").verdict == "ok"
    assert verdict("rocm", tree, "triton").verdict == "bloat"


def test_loaders_for_all_vendors_are_optional_everywhere_and_windows_are_not_meant() -> None:
    tree = image(
        file("cv2/cv2.abi3.so", elf(literals=["libOpenCL.so.1"]), "cv 1"),
        file("gl/gl.abi3.so", elf(literals=["libGL.so.1", "libEGL.so.1"]), "gl 1"),
    )
    for backend in ("cpu", "cuda", "rocm", "oneapi"):
        assert verdict(backend, tree, "cv").verdict == "optional"
        assert verdict(backend, tree, "gl").verdict == "ok"


@pytest.mark.parametrize(
    "name", ["libOpenCL.so.1", "libvulkan.so.1", "libdxcore.so", "libd3d12.so"]
)
@pytest.mark.parametrize("root", [True, False])
def test_a_loader_that_is_linked_has_to_be_there(name: str, root: bool) -> None:
    extension = file("demo/_c.abi3.so", elf(needed=[name]), "demo 1")
    for backend in ("cpu", "cuda"):
        tree = image(extension, root=root)
        assert verdict(backend, tree, "demo").verdict == "broken"
        assert only(of_image(target(backend), tree), "BM301").severity == "error"
    beside = image(extension, file(f"usr/lib/x86_64-linux-gnu/{name}", elf(name)))
    if not name.startswith("libd"):
        assert verdict("cpu", beside, "demo").verdict == "optional"
        assert codes(of_image(target("cpu"), beside), "error", "warning") == []


@pytest.mark.parametrize(
    ("site", "path", "expected"),
    [
        # As the tree of a wheel shows `.data/data/lib`, and as it is installed.
        ("", "lib/libdemo.so.1", "broken"),
        ("lib/python3.11/site-packages/", "lib/libdemo.so.1", "broken"),
        ("opt/venv/lib/python3.11/site-packages/", "opt/venv/lib/libdemo.so.1", "broken"),
        ("", "demo/lib/libdemo.so.1", "optional"),
        ("", "lib/demo/libdemo.so.1", "optional"),
        ("lib/python3.11/site-packages/", "lib/python3.11/site-packages/x/lib/liba.so", "optional"),
    ],
)
def test_a_library_in_the_prefix_is_there_to_be_linked(site: str, path: str, expected: str) -> None:
    tree = Inventory(
        distributions=(Distribution("demo", "1", f"{site}demo-1.dist-info"),),
        binaries=(Binary(path, 1_000_000, elf(needed=["libcuda.so.1"]), "demo==1"),),
    )
    assert verdict("cpu", tree, "demo").verdict == expected


def test_what_is_for_this_backend_may_know_a_loader_of_all_drivers() -> None:
    names = ["libvulkan.so.1", "libOpenCL.so.1", "libcuda.so.1"]
    code = file("demo/_c.abi3.so", elf(device_code=sass("sm_90"), literals=names), "demo 1")
    assert verdict("cuda", image(code), "demo").verdict == "ok"
    opened = file("demo/_c.abi3.so", elf(literals=names), "demo 1")
    assert verdict("cuda", image(opened), "demo").verdict == "optional"


@pytest.mark.parametrize(
    ("python", "machine", "expected"),
    [
        ("3.13", "linux/amd64", "bloat"),
        ("3.11", "linux/amd64", "ok"),
        ("3.13", "linux/arm64", "ok"),
    ],
)
def test_requirements_hold_for_the_python_and_the_machine_of_the_target(
    python: str, machine: str, expected: str
) -> None:
    line = "nvidia-nccl-cu12; python_version >= '3.12' and platform_machine == 'x86_64'"
    tree = Inventory(distributions=(Distribution("demo", "1", "demo-1.dist-info", (line,)),))
    where = replace(target("cpu", platform=machine), python=python)
    said = judge_image(where, tree, evidence(tree, load()), None, load(), Policy())
    assert [one.verdict for one in said.verdicts] == [expected]


def test_requirements_that_markers_split_are_unconditional() -> None:
    lines = (
        "nvidia-nccl-cu12<2; python_version < '3.12'",
        "nvidia-nccl-cu12>=2; python_version >= '3.12'",
    )
    tree = Inventory(distributions=(Distribution("demo", "1", "demo-1.dist-info", lines),))
    assert verdict("cpu", tree, "demo").verdict == "bloat"


def test_the_threshold_is_about_what_a_layer_carries() -> None:
    loose = sass("sm_90a", size=8_800_000)
    packed = tuple(replace(code, compressed=code.count) for code in loose)

    def judged(code: Sequence[DeviceCode]) -> str:
        extension = file("demo/_C.abi3.so", elf(device_code=code), "demo 1")
        return verdict("cpu", image(extension), "demo").verdict

    assert judged(loose) == "optional"
    assert judged(packed) == "bloat"


def test_a_wheel_says_what_its_files_take_in_it() -> None:
    kernels = tuple(replace(one, compressed=one.count) for one in sass("sm_90a", size=8_800_000))
    extension = file("demo/_C.abi3.so", elf(device_code=kernels), "demo 1", size=9_000_000)
    for packed, said in ((None, "bloat"), (1_300_000, "optional"), (8_000_000, "bloat")):
        tree = image(replace(extension, packed=packed))
        assert verdict("cpu", tree, "demo").verdict == said


def test_a_static_compiler_is_bloat_without_any_name() -> None:
    tree = image(
        file("warp/bin/warp.so", elf(marks=["nvrtc-error-prefix"]), "demo 1", size=200_000_000)
    )
    assert verdict("cpu", tree, "demo").verdict == "bloat"


def test_what_packages_for_this_backend_bring_is_expected() -> None:
    tree = image(
        file("libumf.so.1", elf("libumf.so.1", literals=["libcuda.so.1"]), "umf 1.1.0"),
        installed=["mkl 2026.2.0"],
    )
    assert verdict("cpu", tree, "umf").verdict == "ok"
    assert verdict("cuda", tree, "umf").verdict == "optional"


def test_a_name_that_is_tolerated_here_is_judged_by_its_bytes() -> None:
    for_rocm = image(
        file("flash_attn_2.abi3.so", elf(device_code=hip("gfx942")), "flash-attn 2.8.3")
    )
    assert verdict("rocm", for_rocm, "flash-attn").verdict == "ok"
    for_cuda = image(
        file("flash_attn_2.abi3.so", elf(device_code=sass("sm_90")), "flash-attn 2.8.3")
    )
    assert verdict("rocm", for_cuda, "flash-attn").verdict == "bloat"
    assert "NVIDIA" in verdict("rocm", for_cuda, "flash-attn").reason


@pytest.mark.parametrize("module", ["vllm", "flash_attn"])
def test_what_has_a_build_for_this_backend_too_may_be_used_where_it_is_installed(
    module: str,
) -> None:
    tree = image(installed=["demo 1"])
    tries = PythonImport(
        path=f"{SITE}/demo/worker.py", line=20, module=module, how="tried", owner="demo==1"
    )
    one = verdict("rocm", replace(tree, python_imports=(tries,)), "demo")
    assert (one.verdict, one.reason) == ("ok", "nothing foreign is loaded, shipped or required")


def test_a_library_outside_of_pythons_folders_is_linked_as_any_other() -> None:
    def below(prefix: str, name: str, needed: Sequence[str], owner: str) -> Binary:
        binary = elf(name, needed)
        return Binary(f"{prefix}lib/{name}", 1_000_000, binary, owner.replace(" ", "=="))

    library = below("usr/", "libdemo.so", ["libsycl.so.8"], "demo 1")
    tree = image(library, root=False)
    assert verdict("cpu", tree, "demo").verdict == "broken"
    assert only(of_image(target("cpu"), tree), "BM301").severity == "error"
    sycl = below("usr/", "libsycl.so.8", [], "intel-sycl-rt 2025.0")
    assert verdict("oneapi", image(library, sycl, root=False), "demo").verdict == "ok"


@pytest.mark.parametrize(
    ("name", "vendor"),
    [("libOpenCL.so.1", "khronos"), ("libamd_smi.so", "amd"), ("libnvidia-ml.so.1", "nvidia")],
)
def test_a_reason_that_names_a_library_says_whose_it_is(name: str, vendor: str) -> None:
    tree = image(file("demo/_c.abi3.so", elf(literals=[name]), "demo 1"))
    said = verdict("cpu", tree, "demo")
    assert name in said.reason and said.vendors == (vendor,)


@pytest.mark.parametrize("name", ["nvidia-ml-py", "pyrsmi", "habana-pyhlml"])
def test_bindings_of_what_lists_devices_are_a_note_by_their_names(name: str) -> None:
    tree = image(installed=[f"{name} 1.0"], root=False)
    assert verdict("cpu", tree, name).verdict in ("ok", "optional")
    assert [one.severity for one in of_image(target("cpu"), tree)] == ["note"]
