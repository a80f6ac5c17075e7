"""The finding that each documented failure (docs/incidents.md) must give, and a near miss.

| row | what must be said | test | what must stay quiet |
|---|---|---|---|
| A2, B11 | BM204 | test_image_rules: two_distributions_that_spliced | a namespace package |
| A3 | BM102 | here: a3 | the build for ROCm |
| A5 | BM101, with the bytes | here: a5 | |
| A8 | BM203 | here: a8 | triton in a CUDA image |
| A9 | BM101, BM401, bloat | here: a9 | xgboost-cpu; xgboost on CUDA |
| A12 | BM102 | here: a12 | the build for the CPU |
| A13 | BM205 | here: a13 | an upgrade within ROCm; pip twice |
| A14 | BM205 | here: a14 | two environments that do not see each other |
| A15 | BM604 | here: a15; integration/test_incidents_layers | deleted package lists |
| B2 | BM302 | here: b2 | the runtime is in a wheel; the import is guarded |
| B3 | BM103 / BM109, BM303 | here: b3; test_lock_rules: b3 | one line |
| B4, B5 | BM303 | here: b4; test_image_rules: b4_b5 | cupti of two lines in triton |
| B6 | BM304 | here: b6 | a base with the runtime library alone |
| B7 | BM705, BM701 | test_unmet_requirement: b7; test_node_drivers | branches that the base lists |
| B8, B9 | BM402 | test_image_rules, test_architecture_rules: b8, b9 | PTX: BM403 |
| B10 | BM302 | here: b10 | the same wheel with its requirements |
| C xgboost | bloat | test_verdicts; a9 here | on CUDA |
| C ctranslate2 | BM401 | test_image_rules: c_ctranslate2; here: c | on CUDA |
| C triton | BM203, bloat | here: a8, c | on CUDA |
| C bitsandbytes | BM401, bloat not broken | test_image_rules, test_verdicts | |
| C lmcache | BM301, broken | here: c; test_image_rules: a6 | on CUDA with torch |
| C tilelang | nothing | here: c; test_image_rules: c_tilelang | |
| C libcurand | BM401 and the vendor's name | here: c | on CUDA |
| C auditwheel-grafted | BM201 | test_image_rules: c | mangled libraries of nobody |

How guarded an import is, which tells `broken` from `optional` in all of these, is asked of a real
interpreter in `tests/integration/test_incidents_imports.py`.

The real wheels of table C are in `tests/integration/test_corpus.py` (small ones) and
`tests/corpus/check_corpus.py` (all).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rulecases import (
    SITE,
    codes,
    elf,
    file,
    image,
    lock,
    of_image,
    of_lock,
    only,
    pin,
    sass,
    target,
    verdict,
)

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import (
    Binary,
    Distribution,
    Inventory,
    Layer,
    PythonImport,
    PythonLoad,
    PythonPath,
    ShadowedFiles,
)
from buildmatrix.facts.python_imports import Reach
from buildmatrix.judge.model import Finding

CPU = target("cpu")
ROCM = target("rocm", "6.4")
CUDA = target("cuda", "12.8")
CUDA13 = target("cuda", "13.0")
XPU = target("oneapi", "2025.3")
PYTHON = PythonPath("usr/bin/python3.11", "3.11", (SITE,))


def test_every_row_that_is_cited_stands_in_the_document() -> None:
    text = (Path(__file__).parents[3] / "docs" / "incidents.md").read_text()
    rows = set(re.findall(r"^\| ([ABC][0-9]+) \|", text, re.MULTILINE))
    assert rows >= set(re.findall(r"\b[AB][0-9]+\b", __doc__ or ""))
    wheels = re.findall(r"^\| C ([\w-]+)", __doc__ or "", re.MULTILINE)
    assert [name for name in wheels if f"\n| {name} " not in text] == []


def reached(binary: Binary, how: Reach) -> Binary:
    return replace(binary, reach=how)


def at(folder: str, name: str, version: str, size: int = 0) -> Distribution:
    return Distribution(name, version, f"{folder}/{name}-{version}.dist-info", size=size)


def rules(findings: Sequence[Finding]) -> set[str]:
    return {one.rule for one in findings}


# A8, A9


def triton() -> Inventory:
    tools = "triton/backends/nvidia"
    return image(
        file(f"{tools}/bin/ptxas", elf(), "triton 3.9.0", size=40_000_000),
        file(f"{tools}/lib/cupti/libcupti.so.12", elf("libcupti.so.12"), "triton 3.9.0"),
        file("triton/_C/libtriton.so", elf("libtriton.so"), "triton 3.9.0"),
    )


def test_triton_with_nvidias_tools_in_a_cpu_image_a8() -> None:
    findings = of_image(CPU, triton())
    assert only(findings, "BM203").severity == "error"
    assert verdict("cpu", triton(), "triton").verdict == "bloat"
    assert "BM203" not in rules(of_image(CUDA, triton()))
    assert verdict("cuda", triton(), "triton").verdict == "ok"


def xgboost() -> Inventory:
    return image(
        file(
            "xgboost/lib/libxgboost.so",
            elf(device_code=sass("sm_75"), literals=["libcuda.so.1"]),
            "xgboost 3.4.1",
        ),
        installed=["nvidia-nccl-cu13 2.28"],
        requires={"xgboost": ["numpy", "nvidia-nccl-cu13"]},
        sizes={"nvidia-nccl-cu13": 450_000_000},
    )


def test_xgboost_on_cpu_brings_nccl_and_device_code_that_no_link_shows_a9() -> None:
    locked = lock(pin("xgboost 3.4.1", "base.in:3"), pin("nvidia-nccl-cu13 2.28", "xgboost"))
    findings = of_image(CPU, xgboost(), locked=locked)
    assert {"BM101 nvidia-nccl-cu13", "BM401 xgboost"} <= set(codes(findings, "error"))
    assert "BM301" not in rules(findings)
    fixed = only(findings, "BM401").fix
    assert fixed is not None and "xgboost-cpu" in fixed.text
    assert verdict("cpu", xgboost(), "xgboost").verdict == "bloat"
    twin = image(file("xgboost/lib/libxgboost.so", elf(), "xgboost-cpu 3.4.1"))
    assert of_image(CPU, twin) == ()
    assert "BM401" not in rules(of_image(CUDA13, xgboost()))


# A3, A5, A12


def test_cuda_torch_in_an_image_that_says_rocm_a3() -> None:
    findings = of_image(target("rocm", "7.0"), image(installed=["torch 2.9.0+cu130"]))
    one = only(findings, "BM102")
    assert (one.severity, one.vendor) == ("error", "nvidia")
    own = of_image(target("rocm", "7.0"), image(installed=["torch 2.9.0+rocm7.0"]))
    assert "BM102" not in rules(own)


def test_a_cpu_lock_says_what_nvidias_packages_weigh_a5() -> None:
    packages = pin("torch 2.9.0"), pin("nvidia-cublas-cu12 12.8", "torch", size=600_000_000)
    one = only(of_lock(CPU, *packages), "BM101")
    assert one.severity == "error"
    assert "600.0 MB" in one.message


def test_a_committed_lock_of_a_cpu_image_with_cuda_torch_a12() -> None:
    assert only(of_lock(CPU, pin("torch 2.7.0+cu126")), "BM102").severity == "error"
    assert of_lock(CPU, pin("torch 2.7.0+cpu")) == ()


# A13, A14


def test_cuda_torch_over_the_rocm_torch_of_the_base_image_a13() -> None:
    base = "opt/venv/lib/python3.11/site-packages"
    tree = replace(
        image(),
        distributions=(
            at(base, "torch", "2.9.0+rocm6.4", 4_000_000_000),
            at(SITE, "torch", "2.9.0+cu128", 900_000_000),
        ),
        python_paths=(PythonPath("opt/venv/bin/python", "3.11", (base, SITE)),),
    )
    one = only(of_image(ROCM, tree), "BM205")
    assert (one.severity, one.vendor, one.version) == ("error", "nvidia", "2.9.0+rocm6.4")
    assert "imports 2.9.0+rocm6.4, and 900.0 MB are never used" in one.message


def test_a_base_images_torch_that_a_later_layer_replaced_a13() -> None:
    def exchanged(before: str, after: str) -> Inventory:
        return replace(
            image(installed=[f"torch {after}"]),
            layers=(
                Layer("sha256:0", "ADD rocm/pytorch", 9, 9),
                Layer("sha256:1", "RUN uv sync", 9),
            ),
            buried=(ShadowedFiles(f"{SITE}/torch-{before}.dist-info", 5, 900_000, 0, 1),),
        )

    one = only(of_image(ROCM, exchanged("2.9.0+rocm6.4", "2.9.0+cu128")), "BM205")
    assert one.severity == "error"
    assert "torch 2.9.0+rocm6.4" in one.message and "replaced by 2.9.0+cu128" in one.message
    upgrade = exchanged("2.8.0+rocm6.4", "2.9.0+rocm6.4")
    assert "BM205" not in rules(of_image(ROCM, upgrade))


def test_two_records_of_one_distribution_in_one_folder_a13() -> None:
    tree = image(installed=["torch 2.9.0+rocm6.4", "torch 2.8.0+rocm6.4"])
    one = only(of_image(ROCM, replace(tree, python_paths=(PYTHON,))), "BM205")
    assert one.severity == "error"
    assert "unpacked over the other" in one.message


XPU_SITE = "opt/venv/lib/python3.11/site-packages"
CUDA_SITE = "opt/deps"


def two_sites(*paths: PythonPath, pythonpath: str = "") -> Inventory:
    return replace(
        image(environment={"PYTHONPATH": pythonpath} if pythonpath else {}),
        distributions=(
            at(XPU_SITE, "torch", "2.9.0+xpu"),
            at(CUDA_SITE, "torch", "2.8.0+cu128"),
        ),
        python_paths=paths,
    )


def test_the_build_that_was_installed_is_not_the_one_that_is_imported_a14() -> None:
    venv = PythonPath("opt/venv/bin/python", "3.11", (XPU_SITE,))
    one = only(of_image(XPU, two_sites(venv, pythonpath="/opt/deps")), "BM205")
    assert one.severity == "error"
    assert one.version == "2.8.0+cu128"
    assert "opt/venv/bin/python finds torch twice" in one.message
    assert "it imports 2.8.0+cu128" in one.message


def test_a_pth_file_adds_its_folder_behind_the_site_a14() -> None:
    venv = PythonPath("opt/venv/bin/python", "3.11", (XPU_SITE, CUDA_SITE))
    assert "it imports 2.9.0+xpu" in only(of_image(XPU, two_sites(venv)), "BM205").message


def test_two_environments_that_do_not_see_each_other_a14() -> None:
    venv = PythonPath("opt/venv/bin/python", "3.11", (XPU_SITE,))
    other = PythonPath("opt/other/bin/python", "3.11", (CUDA_SITE,))
    findings = of_image(XPU, two_sites(venv, other))
    assert "BM205" not in rules(findings)
    # The CUDA build is foreign wherever it lies.
    assert "BM102" in rules(findings)


def test_pip_twice_is_every_debian_image_a14() -> None:
    debian = "usr/lib/python3/dist-packages"
    tree = replace(
        image(),
        distributions=(at(SITE, "pip", "25.0"), at(debian, "pip", "23.0")),
        python_paths=(PythonPath("usr/bin/python3.11", "3.11", (SITE, debian)),),
    )
    assert of_image(CPU, tree) == ()


# A15

INSTALL = "RUN pip install torch"
UNINSTALL = "RUN pip uninstall -y torch nvidia-cublas-cu12"


def deleted(*groups: ShadowedFiles) -> Inventory:
    layers = (Layer("sha256:0", "ADD root /", 9), Layer("sha256:1", INSTALL, 9), Layer("", "", 9))
    return replace(
        image(),
        layers=(*layers[:2], Layer("sha256:2", UNINSTALL, 9)),
        buried=groups,
    )


def test_cuda_that_a_later_layer_uninstalled_still_ships_a15() -> None:
    tree = deleted(
        ShadowedFiles(
            f"{SITE}/nvidia", 99, 700_000_000, 1, 2, names=("libcublas.so.12", "libcudart.so.12")
        ),
        ShadowedFiles(f"{SITE}/nvidia_cublas_cu12-12.8.4.dist-info", 5, 3_000, 1, 2),
    )
    one = only(of_image(CPU, tree), "BM604")
    assert (one.severity, one.vendor) == ("error", "nvidia")
    assert "700.0 MB" in one.message and "libcublas.so.12" in one.message
    assert f"layer 2 ({INSTALL})" in one.message and f"layer 3 ({UNINSTALL})" in one.message
    assert [item.kind for item in one.evidence] == ["bundled", "bundled", "declared"]
    small = deleted(ShadowedFiles("opt/x", 1, 900_000, 1, 2, names=("libcudart.so.12",)))
    assert only(of_image(CPU, small), "BM604").severity == "error"
    own = only(of_image(CUDA, tree), "BM604")
    assert (own.severity, own.vendor) == ("warning", None)


def test_a_models_copy_with_other_rights_ships_twice_a15() -> None:
    one = only(
        of_image(CPU, deleted(ShadowedFiles("srv/models", 1, 90_000_000, 1, 2, True))), "BM604"
    )
    assert one.severity == "warning"
    assert "was replaced by" in one.message


def test_what_two_layers_of_the_base_do_is_no_step_of_ours_a15() -> None:
    tree = deleted(ShadowedFiles("usr/share/doc", 1, 90_000_000, 0, 1))
    base = (*(replace(layer, is_base=True) for layer in tree.layers[:2]), tree.layers[2])
    found = only(of_image(CPU, replace(tree, layers=base)), "BM604")
    assert found.severity == "note"
    assert f"Both are layers of the base image {CPU.base.final}" in found.message
    assert found.fix is not None and found.fix.kind == "base"

    # What a step of ours deletes of the base stays ours.
    ours = deleted(ShadowedFiles("usr/share/doc", 1, 90_000_000, 0, 2))
    found = only(of_image(CPU, replace(ours, layers=base)), "BM604")
    assert found.severity == "warning"
    assert found.fix is not None and found.fix.kind == "rebuild"


def test_package_lists_that_a_later_layer_deleted_are_small_a15() -> None:
    assert of_image(CPU, deleted(ShadowedFiles("var/lib/apt", 30, 900_000, 1, 2))) == ()


def test_names_that_only_look_like_cuda_are_no_vendors_when_deleted_a15() -> None:
    names = ("libicudata.so.72", "libcurl.so.4", "cudaq.txt")
    tree = deleted(ShadowedFiles("usr/lib/x86_64-linux-gnu", 9, 40_000_000, 1, 2, names=names))
    assert only(of_image(CPU, tree), "BM604").vendor is None


# B2, B10


def flash_attn(how: Reach, *more: Binary) -> Inventory:
    extension = file("flash_attn_2_cuda.abi3.so", elf(needed=["libcudart.so.12"]), "flash-attn 2")
    return image(
        reached(extension, how),
        file("usr/local/cuda/lib64/libcudart.so.13", elf("libcudart.so.13")),
        *more,
    )


def test_flash_attn_for_cuda_12_in_a_cuda_13_image_b2() -> None:
    one = only(of_image(CUDA13, flash_attn("import")), "BM302")
    assert one.severity == "error"
    assert "libcudart.so.12" in one.message and "an import loads it" in one.message
    wheel = file("nvidia/cuda_runtime/lib/libcudart.so.12", elf("libcudart.so.12"), "rt-cu12 12.9")
    assert "BM302" not in rules(of_image(CUDA13, flash_attn("import", wheel)))


def test_what_an_import_survives_without_is_a_warning_b2() -> None:
    assert only(of_image(CUDA13, flash_attn("guarded")), "BM302").severity == "warning"


def test_what_fails_whenever_it_is_loaded_is_an_error_where_it_is_all_there_is_b2() -> None:
    assert only(of_image(CUDA13, flash_attn("lazy")), "BM302").severity == "error"
    more = file("flash_attn/large.abi3.so", elf(), "flash-attn 2", size=30_000_000)
    assert only(of_image(CUDA13, flash_attn("lazy", more)), "BM302").severity == "warning"


def test_an_extension_behind_others_that_python_names_is_a_warning_b2() -> None:
    """One notion of reach for rules and verdicts: where Python code names the others."""
    owner = "cupy-cuda13x 14.2"
    tree = image(
        reached(file("cupy/_core.abi3.so", elf(), owner), "import"),
        file("cupy/cufft.abi3.so", elf(needed=["libcufft.so.11"]), owner),
    )
    assert only(of_image(CUDA13, tree), "BM302").severity == "warning"


def test_an_xpu_wheel_on_a_stock_image_b10() -> None:
    torch = file("torch/lib/libc10_xpu.so", elf(needed=["libsycl.so.8"]), "torch 2.9.0+xpu")
    extension = file("torch/_C.abi3.so", elf(needed=["libc10_xpu.so"]), "torch 2.9.0+xpu")
    tree = image(reached(extension, "import"), torch)
    one = only(of_image(XPU, tree), "BM302")
    assert (one.severity, one.path) == ("error", f"{SITE}/torch/lib/libc10_xpu.so")
    runtime = file("../../libsycl.so.8", elf("libsycl.so.8"), "intel-sycl-rt 2025.3")
    whole = image(reached(extension, "import"), torch, runtime)
    assert "BM302" not in rules(of_image(XPU, whole))


# B3 to B6


def test_wheels_of_two_lines_in_a_cuda_12_image_b3() -> None:
    lines = ("nixl-cu12 1.0", "nixl-cu13 1.0", "cupy-cuda13x 14.2")
    tree = image(
        file("nvidia/cuda_runtime/lib/libcudart.so.12", elf("libcudart.so.12"), "rt-cu12 12.9"),
        file("nvidia/cu13/lib/libcudart.so.13", elf("libcudart.so.13"), "rt 13.0"),
        installed=lines,
    )
    findings = of_image(CUDA, tree)
    assert only(findings, "BM303").severity == "error"
    assert {"BM103 cupy-cuda13x", "BM103 nixl-cu13"} <= set(codes(findings))
    assert of_lock(CUDA, pin("nixl-cu12 1.0"), pin("cupy-cuda12x 14.2")) == ()


def test_torch_for_cuda_12_8_on_a_13_0_base_b4() -> None:
    tree = image(
        file("usr/local/cuda-13.0/lib64/libcudart.so.13", elf("libcudart.so.13")),
        file("nvidia/cuda_runtime/lib/libcudart.so.12", elf("libcudart.so.12"), "rt-cu12 12.8"),
        installed=["torch 2.9.0+cu128"],
    )
    one = only(of_image(CUDA13, tree), "BM303")
    assert (one.severity, one.distribution) == ("error", "rt-cu12")


def vendor_base(size: int) -> Inventory:
    return image(
        file("usr/local/cuda-12.8/lib64/libcublas.so.12", elf("libcublas.so.12"), size=size),
        file("usr/local/cuda-12.8/lib64/libcufft.so.11", elf("libcufft.so.11"), size=size),
        file("usr/local/cuda-12.8/lib64/stubs/libcuda.so", elf("libcuda.so.1"), size=size),
        file("nvidia/stubs/libcuda.so", elf("libcuda.so.1"), "cudart 1", size=size),
        file("nvidia/cublas/lib/libcublas.so.12", elf("libcublas.so.12"), "cublas 1", size=size),
        file("nvidia/cufft/lib/libcufft.so.11", elf("libcufft.so.11"), "cufft 1", size=size // 2),
    )


def test_vendor_base_and_vendor_wheels_hold_every_library_twice_b6() -> None:
    one = only(of_image(CUDA, vendor_base(600_000_000)), "BM304")
    assert (one.severity, one.vendor) == ("warning", "nvidia")
    assert "2 libraries of NVIDIA CUDA" in one.message
    assert "1.2 GB from the base image" in one.message and "900.0 MB from cublas 1" in one.message
    assert "900.0 MB are wasted" in one.message


def test_a_base_with_the_runtime_library_alone_is_no_waste_b6() -> None:
    small = image(
        file("usr/local/cuda/lib64/libcudart.so.12", elf("libcudart.so.12"), size=700_000),
        file("nvidia/lib/libcudart.so.12", elf("libcudart.so.12"), "rt 1", size=700_000),
    )
    assert of_image(CUDA, small) == ()
    only_base = image(
        file("usr/local/cuda/lib64/libcublas.so.12", elf("libcublas.so.12"), size=700_000_000)
    )
    assert of_image(CUDA, only_base) == ()


# C


def test_lmcache_is_broken_where_its_library_cannot_be_c() -> None:
    extension = file(
        "lmcache/c_ops.abi3.so",
        elf(needed=["libcudart.so.13", "libtorch_cuda.so"]),
        "lmcache 0.5.6",
    )
    for backend in ("cpu", "rocm", "oneapi"):
        assert verdict(backend, image(reached(extension, "import")), "lmcache").verdict == "broken"
    runtime = file("nvidia/cu13/lib/libcudart.so.13", elf("libcudart.so.13"), "rt 13")
    torch = file("torch/lib/libtorch_cuda.so", elf("libtorch_cuda.so"), "torch 2.10.0+cu130")
    there = image(reached(extension, "import"), runtime, torch)
    assert verdict("cuda", there, "lmcache").verdict == "ok"


def test_ctranslate2_is_bloat_by_its_device_code_alone_c() -> None:
    library = elf("libctranslate2-a7a60d30.so", device_code=sass("sm_80", size=46_000_000))
    tree = image(file("ctranslate2.libs/libctranslate2-a7a60d30.so", library, "ctranslate2 4.8"))
    assert verdict("rocm", tree, "ctranslate2").verdict == "bloat"
    assert verdict("cuda", tree, "ctranslate2").verdict == "ok"


def test_tilelangs_stubs_are_no_cuda_c() -> None:
    names = ("libstub_cudart.so", "libstub_nvrtc.so", "libstub_hip.so")
    tree = image(
        *(file(f"tilelang/lib/{name}", elf(name), "tilelang 0.1.15") for name in names),
        file("tilelang/lib/libtvm.so", elf(needed=names[:2]), "tilelang 0.1.15"),
    )
    for backend in ("cpu", "rocm", "cuda"):
        assert of_image(target(backend), tree) == ()
        assert verdict(backend, tree, "tilelang").verdict == "ok"


def test_libcurand_is_foreign_by_name_and_by_code_c() -> None:
    library = elf(
        "libcurand.so.10", device_code=sass("sm_80", "sm_90"), marks=["cudart-error-string"]
    )
    tree = image(file("nvidia/cu13/lib/libcurand.so.10", library, "nvidia-curand 10.4"))
    assert {"BM101", "BM201", "BM401"} <= rules(of_image(CPU, tree))
    assert codes(of_image(CUDA13, tree), "error") == []


# What an import needs of other distributions

PLACE = f"{SITE}/pkg/debuginfo.py"


def importing(
    how: str, module: str, tree: Inventory, owner: str, provider: str | None = None
) -> Inventory:
    statement = PythonImport(PLACE, 46, module, how, owner, provider)  # type: ignore[arg-type]
    return replace(tree, python_imports=(statement,))


def test_an_import_that_calls_a_binding_without_its_libraries_is_broken() -> None:
    requires = {"numba-cuda": ["cuda-bindings<14", 'cuda-toolkit[cudart]; extra == "cu13"']}
    wheel = image(installed=["numba-cuda 0.30.4"], requires=requires, root=False)
    tree = importing("called", "cuda.bindings.runtime", wheel, "numba-cuda==0.30.4")
    one = verdict("rocm", tree, "numba-cuda")
    assert one.verdict == "broken"
    assert f"calls cuda.bindings.runtime ({PLACE}:46)" in one.reason
    assert verdict("cuda", tree, "numba-cuda").verdict == "ok"


def test_a_binding_that_finds_its_libraries_breaks_nothing() -> None:
    tree = image(
        file("usr/local/cuda/lib64/libcudart.so.13", elf("libcudart.so.13")),
        installed=["numba-cuda 0.30.4", "cuda-bindings 13.5.0"],
    )
    tree = importing(
        "called", "cuda.bindings.runtime", tree, "numba-cuda==0.30.4", "cuda-bindings==13.5.0"
    )
    assert verdict("rocm", tree, "numba-cuda").verdict == "bloat"


def test_an_import_of_what_cannot_be_imported_cannot_either() -> None:
    audio = file("torchaudio/_C.abi3.so", elf(needed=["libcudart.so.13"]), "torchaudio 2.11")
    tree = image(reached(audio, "import"), installed=["speech 1"])
    for how, said in (("imported", "broken"), ("tried", "ok")):
        other = importing(how, "torchaudio", tree, "speech==1", "torchaudio==2.11")
        one = verdict("cpu", other, "speech")
        assert one.verdict == said, one.reason
    assert (
        "imports torchaudio 2.11"
        in verdict(
            "cpu",
            importing("imported", "torchaudio", tree, "speech==1", "torchaudio==2.11"),
            "speech",
        ).reason
    )


def test_a_vendored_shim_over_another_vendors_package_is_optional() -> None:
    tree = importing("tried", "amdsmi", image(installed=["ray 2.60.0"]), "ray==2.60.0")
    assert verdict("cuda", tree, "ray").verdict == "optional"
    assert verdict("rocm", tree, "ray").verdict == "ok"


def test_packages_without_a_backend_of_their_own_may_be_tried() -> None:
    for module in ("torch", "nvtx", "pynvml", "triton", "orjson"):
        tree = importing("tried", module, image(installed=["demo 1"]), "demo==1")
        assert verdict("cpu", tree, "demo").verdict == "ok", module


def test_a_build_for_the_cpu_may_try_what_its_other_builds_use() -> None:
    name = "torch 2.13.0+cpu"
    tree = importing("tried", "amdsmi", image(installed=[name]), "torch==2.13.0+cpu")
    assert verdict("cpu", tree, "torch").verdict == "ok"


def test_bindings_that_fail_without_the_loader_that_vendors_share_are_broken() -> None:
    """As `vulkan` 1.3 does it; a name of another system is no other way to go."""
    load = PythonLoad(
        f"{SITE}/vulkan/_vulkan.py",
        106,
        "dlopen",
        ("libvulkan.so.1", "vulkan-1.dll"),
        reach="import",
        owner="vulkan==1.3",
    )
    tree = replace(image(installed=["vulkan 1.3"]), python_loads=(load,))
    assert verdict("cpu", tree, "vulkan").verdict == "broken"
    other = replace(load, names=("libvulkan.so.1", "libm.so.6"))
    assert verdict("cpu", replace(tree, python_loads=(other,)), "vulkan").verdict != "broken"
    there = file("usr/lib/libvulkan.so.1", elf("libvulkan.so.1"))
    with_it = replace(tree, binaries=(*tree.binaries, there))
    assert verdict("cpu", with_it, "vulkan").verdict != "broken"
