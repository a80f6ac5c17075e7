"""Evidence: facts of an inventory joined with the catalogue."""

import pytest

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.elf.model import DeviceCode, Elf, Literal, Mark, Section
from buildmatrix.facts.inventory.model import (
    Artefact,
    Binary,
    Distribution,
    Inventory,
    PythonLoad,
    SystemPackage,
)
from buildmatrix.facts.python_imports import Reach

CATALOGUE = load()


def elf(
    *needed: str,
    soname: str | None = None,
    kind: str = "dyn",
    sections: tuple[Section, ...] = (),
    code: tuple[DeviceCode, ...] = (),
    literals: tuple[Literal, ...] = (),
    marks: tuple[Mark, ...] = (),
) -> Elf:
    return Elf(
        bits=64,
        little_endian=True,
        machine="x86_64",
        type=kind,
        soname=soname,
        needed=needed,
        sections=sections,
        device_code=code,
        literals=literals,
        marks=marks,
    )


def of_file(path: str, facts: Elf, *, owner: str | None = None, size: int = 100) -> list[Evidence]:
    return list(evidence(Inventory(binaries=(Binary(path, size, facts, owner),)), CATALOGUE))


def summary(found: list[Evidence]) -> list[tuple[str, str, str]]:
    return [(item.kind, item.backend, item.detail) for item in found]


FATBIN = DeviceCode("nv-fatbin", "sass", "sm_90", 3, 4000, 4096, ".nv_fatbin")
PTX = DeviceCode("nv-fatbin", "ptx", "compute_120", 1, 500, 2048, ".nv_fatbin")


# Bundled


@pytest.mark.parametrize(
    ("path", "soname", "detail"),
    [
        ("nvidia/lib/libcudart.so.12", "libcudart.so.12", "libcudart.so.12"),
        (
            "x.libs/libcudart-9335f6a2.so.12",
            "libcudart-9335f6a2.so.12",
            "libcudart-9335f6a2.so.12 (libcudart.so.12)",
        ),
        (
            "torchvision.libs/libcudart.faf08d9a.so.12",
            "libcudart.so.12",
            "libcudart.faf08d9a.so.12 (libcudart.so.12)",
        ),
        ("lib/libhelper.so", "libcudart.so.12", "libhelper.so (libcudart.so.12)"),
        ("lib/libcudart.so.12", None, "libcudart.so.12"),
    ],
)
def test_a_bundled_library_is_known_by_file_name_or_soname(
    path: str, soname: str | None, detail: str
) -> None:
    (found,) = of_file(path, elf(soname=soname), owner="x==1", size=700)
    assert (found.kind, found.vendor, found.backend) == ("bundled", "nvidia", "cuda")
    assert (found.detail, found.role, found.toolkit) == (detail, "runtime", "12")
    assert (found.size, found.distribution) == (700, "x==1")


def test_a_file_of_the_base_image_has_no_distribution() -> None:
    (found,) = of_file("usr/local/cuda-12.8/lib64/libcudart.so.12", elf())
    assert found.distribution is None


def test_a_renamed_library_does_not_hide_behind_a_neutral_file_name() -> None:
    (found,) = of_file("lib/libgomp.so.1", elf(soname="libcudart.so.12"))
    assert found.backend == "cuda"


def test_the_toolkit_of_an_ambiguous_name_comes_from_the_owner() -> None:
    path = "nvidia/curand/lib/libcurand.so.10"
    (wheel,) = of_file(path, elf(), owner="nvidia-curand-cu12==10.3.9.90")
    (bare,) = of_file("usr/lib/libcurand.so.10", elf())
    assert (wheel.toolkit, bare.toolkit) == ("12", None)


def test_driver_copies_belong_to_the_host_but_for_compat_and_stubs() -> None:
    def places(path: str) -> tuple[str, str]:
        (found,) = of_file(path, elf(soname="libcuda.so.1"))
        return found.where, found.weight

    assert places("usr/lib/x86_64-linux-gnu/libcuda.so.1") == ("host", "strong")
    assert places("usr/local/cuda-12.8/compat/libcuda.so.1") == ("image", "strong")
    assert places("usr/local/cuda/lib64/stubs/libcuda.so") == ("image", "weak")


def test_drivers_that_must_be_inside_say_so() -> None:
    (found,) = of_file("opt/rocm/lib/libamdhip64.so.7", elf())
    assert (found.where, found.backend) == ("image-user-driver", "rocm")


def test_an_unknown_file_in_a_vendors_folder_is_weak_evidence() -> None:
    (found,) = of_file("opt/rocm-7.0.2/lib/llvm/bin/lld", elf(kind="exec"))
    assert (found.kind, found.backend, found.weight) == ("bundled", "rocm", "weak")


# Needed


def test_needed_libraries_are_evidence_and_the_cpu_ones_are_not() -> None:
    facts = elf("libcudart.so.13", "libtorch_cuda.so", "libc10.so", "libmkl_rt.so.2", "libc.so.6")
    found = of_file("lmcache/c_ops.so", facts)
    assert summary(found) == [
        ("needed", "cuda", "libcudart.so.13"),
        ("needed", "cuda", "libtorch_cuda.so"),
    ]


def test_a_common_name_counts_beside_one_that_is_the_same_vendors_alone() -> None:
    assert of_file("x.so", elf("libgraph.so")) == []
    found = of_file("torch_npu/_C.so", elf("libgraph.so", "libascendcl.so"))
    assert {(item.detail, item.weight) for item in found} == {
        ("libascendcl.so", "strong"),
        ("libgraph.so", "weak"),
    }


def test_openmp_offload_of_the_cpu_package_is_quiet_and_the_same_elsewhere_is_not() -> None:
    facts = elf("libsycl.so.9")
    assert of_file("lib/libomptarget.sycl.wrap.so", facts, owner="intel-openmp==2026.2.0") == []
    assert summary(of_file("dpctl/_sycl_queue.so", facts)) == [("needed", "oneapi", "libsycl.so.9")]


# Device code


def test_device_code_is_summed_up_per_backend() -> None:
    gfx = DeviceCode("hip-ccob", "amdgcn", "gfx942", 1, 70, 9000, ".hip_fatbin")
    found = of_file("lib.so", elf(code=(FATBIN, PTX, gfx)))
    assert [(item.backend, item.size, item.offset, item.architectures) for item in found] == [
        ("cuda", 4500, 2048, ("compute_120", "sm_90")),
        ("rocm", 70, 9000, ("gfx942",)),
    ]
    assert found[0].detail == ".nv_fatbin: compute_120 sm_90"


def test_objects_for_the_linker_are_not_loaded_but_a_bare_cubin_is_code() -> None:
    assert of_file("lib/kernel.o", elf(kind="rel", code=(FATBIN,))) == []
    cubin = DeviceCode("elf", "sass", "sm_90", 1, 900, 0)
    assert summary(of_file("k/kernel.cubin", elf(kind="rel", code=(cubin,)))) == [
        ("device-code", "cuda", "elf: sm_90")
    ]


def test_sycl_code_for_the_cpu_is_no_accelerators() -> None:
    def sycl(arch: str) -> Elf:
        return elf(code=(DeviceCode("offload-bundle", "unknown", arch, 1, 9, 0),))

    assert of_file("x.so", sycl("spir64_x86_64")) == []
    assert [item.backend for item in of_file("x.so", sycl("spir64_gen"))] == ["oneapi"]


def test_code_that_was_moved_elsewhere_has_unknown_architectures() -> None:
    moved = DeviceCode("hip-kpack", "unknown", None, 1, 0, 64, ".rocm_kpack_ref")
    (found,) = of_file("libtorch_hip_ops.so", elf(code=(moved,)))
    assert (found.backend, found.architectures) == ("rocm", ())
    assert "unknown" in found.detail


def test_a_section_for_device_code_counts_even_when_nothing_in_it_was_read() -> None:
    (found,) = of_file("x.so", elf(sections=(Section(".nv_fatbin", 512, 4096),)))
    assert (found.kind, found.backend, found.size) == ("device-code", "cuda", 4096)
    assert of_file("x.so", elf(sections=(Section(".nv_fatbin", 512, 0),))) == []
    assert of_file("x.so", elf(sections=(Section(".gnu.offload_funcs", 512, 8),))) == []


def of_artefact(
    path: str, kind: str, *codes: DeviceCode, marks: tuple[Mark, ...] = ()
) -> list[Evidence]:
    artefact = Artefact(path, 9000, kind, "app==1", codes, marks)
    return list(evidence(Inventory(artefacts=(artefact,)), CATALOGUE))


def code(container: str, kind: str, arch: str | None = None) -> DeviceCode:
    return DeviceCode(container, kind, arch, 1, 4000, 0)


def test_device_code_among_the_data_of_tests_is_context_only() -> None:
    ptx = code("ptx", "ptx", "compute_50")
    (found,) = of_artefact("numba/cuda/tests/data/jitlink.ptx", "ptx", ptx)
    assert (found.weight, found.confidence) == ("weak", "medium")


@pytest.mark.parametrize(
    ("kind", "found", "backend"),
    [
        ("cubin", code("elf", "sass", "sm_90"), "cuda"),
        ("fatbin", code("nv-fatbin", "sass", "sm_90"), "cuda"),
        ("fatbin", code("nv-fatbin", "unknown"), "cuda"),
        ("ptx", code("ptx", "ptx", "compute_90"), "cuda"),
        ("ltoir", code("ltoir", "lto-ir"), "cuda"),
        ("engine", code("engine", "unknown"), "cuda"),
        ("ttgir", code("triton", "ir", "compute_90"), "cuda"),
        ("a", code("nv-fatbin", "sass", "sm_90"), "cuda"),
        ("hsaco", code("elf", "amdgcn", "gfx942"), "rocm"),
        ("hipfb", code("hip-bundle", "amdgcn", "gfx942"), "rocm"),
        ("kpack", code("hip-kpack", "amdgcn", "gfx942"), "rocm"),
        ("ttgir", code("triton", "ir", "gfx942"), "rocm"),
        ("mxr", code("mxr", "unknown"), "rocm"),
        ("zebin", code("elf", "zebin"), "oneapi"),
        ("aicore", code("elf", "aicore"), "npu"),
        ("spv", code("spirv", "spirv", "spirv64"), "oneapi"),
        ("hipfb", code("offload-bundle", "spirv", "spir64"), "oneapi"),
    ],
)
def test_a_bare_file_of_device_code_belongs_to_a_backend(
    kind: str, found: DeviceCode, backend: str
) -> None:
    (one,) = of_artefact(f"app/kernel.{kind}", kind, found)
    assert (one.kind, one.backend, one.weight, one.size) == ("device-code", backend, "strong", 4000)
    assert one.architectures == ((found.arch,) if found.arch else ())
    assert one.detail == f".{kind} file: {found.arch or 'architectures unknown'}"


@pytest.mark.parametrize(("arch", "backend"), [("nvptx64", "cuda"), ("amdgcn", "rocm")])
def test_bitcode_for_a_device_is_a_tool_whatever_its_name(arch: str, backend: str) -> None:
    (one,) = of_artefact("app/lib/slim.bc", "bc", code("bitcode", "bitcode", arch))
    assert (one.kind, one.backend, one.detail) == ("tool", backend, "slim.bc")
    assert (one.role, one.architectures) == ("compiler", (arch,))


@pytest.mark.parametrize(
    ("path", "kind", "codes"),
    [
        ("lib/libomp-cmath.bc", "bc", (code("bitcode", "bitcode", "spir64"),)),
        ("app/shader.spv", "spv", (code("spirv", "spirv", "spirv"),)),
        ("app/broken.spv", "spv", (code("spirv", "spirv"),)),
        ("app/module.bc", "bc", ()),
        ("app/kernel.ttir", "ttir", (code("triton", "ir"),)),
        ("usr/lib/libx.a", "a", ()),
    ],
)
def test_shaders_and_portable_code_belong_to_nobody(
    path: str, kind: str, codes: tuple[DeviceCode, ...]
) -> None:
    assert of_artefact(path, kind, *codes) == []


def test_the_provider_that_runs_on_any_cpu_is_nobodys() -> None:
    needed = elf("libopenvino.so.2541", soname="libonnxruntime_providers_openvino.so")
    assert of_file("x/libonnxruntime_providers_openvino.so", needed) == []


def test_device_libraries_of_a_compiler_of_the_system_are_context_only() -> None:
    bitcode = code("bitcode", "bitcode", "nvptx64")
    (found,) = of_artefact("usr/lib/clc/nvptx64--nvidiacl.bc", "bc", bitcode)
    assert found.weight == "weak"


def test_programs_as_text_in_a_library_are_context_and_told_apart_from_its_kernels() -> None:
    text = code("ptx-text", "ptx", "compute_50")
    found = of_file("x.so", elf(code=(text, FATBIN)))
    assert {(one.weight, one.detail, one.architectures) for one in found} == {
        ("weak", "ptx-text: compute_50", ()),
        ("strong", ".nv_fatbin: sm_90", ("sm_90",)),
    }


def test_a_static_archive_shows_the_runtime_that_lies_in_it() -> None:
    marks = (Mark("cudart-error-string", 70),)
    (found,) = of_artefact("app/lib/libours.a", "a", marks=marks)
    assert (found.kind, found.backend, found.offset) == ("static", "cuda", 70)
    # Its own name, under which it is no more than a part of a toolkit, changes nothing about that.
    (named,) = of_artefact("nvidia/lib/libcudart_static.a", "a", marks=marks)
    assert (named.kind, named.backend, named.weight) == ("static", "cuda", "strong")
    (empty,) = of_artefact("nvidia/lib/libcudart_static.a", "a")
    assert (empty.kind, empty.weight) == ("bundled", "weak")


def test_tables_beside_device_code_are_known_and_no_evidence() -> None:
    sections = tuple(Section(name, 64, 24) for name in (".nvFatBinSegment", ".tgtimg"))
    assert all(CATALOGUE.sections.find(section.name) for section in sections)
    assert of_file("x.so", elf(sections=sections)) == []


# Static


def test_a_mark_proves_a_static_runtime_except_in_the_runtime_itself() -> None:
    marks = (Mark("cudart-error-string", 77),)
    (found,) = of_file("cuda/bindings/runtime.so", elf(marks=marks))
    assert (found.kind, found.backend, found.offset) == ("static", "cuda", 77)
    (large,) = of_file("x.so", elf(marks=marks), size=9_000_000)
    assert 500_000 < large.size < 1_000_000
    runtime = of_file("lib/libcudart.so.12", elf(soname="libcudart.so.12", marks=marks))
    assert [item.kind for item in runtime] == ["bundled"]


def test_a_static_compiler_without_names_still_counts_and_mkl_does_not() -> None:
    marks = (Mark("nvrtc-error-prefix", 9), Mark("mkl-error-prefix", 40))
    (found,) = of_file("warp/bin/warp.so", elf(marks=marks), size=200_000_000)
    assert (found.kind, found.role, found.backend) == ("static", "compiler", "cuda")
    assert found.size > 5_000_000


def test_registration_and_the_drivers_name_do_not_prove_a_static_runtime() -> None:
    # TensorFlow and XLA register kernels through wrappers that open the shared runtime.
    wrapper = (Section(".nvFatBinSegment", 64, 24),)
    names = (Literal("libcuda.so.1", 9, ".rodata", True),)
    found = of_file("x.so", elf(sections=wrapper, literals=names))
    assert [item.kind for item in found] == ["dlopen"]


@pytest.mark.parametrize(
    ("mark", "backend", "name", "own"),
    [
        ("cublaslt-log-variable", "cuda", "cublaslt", "libcublasLt.so.13"),
        ("cusparse-error-string", "cuda", "cusparse", "libcusparse.so.12"),
        ("cufft-variable", "cuda", "cufft", "libcufft.so.11"),
        ("nccl-version-line", "cuda", "nccl", "libnccl.so.2"),
        ("hip-error-string", "rocm", "hip", "libamdhip64.so.7"),
        ("sycl-cache-variable", "oneapi", "sycl", "libsycl.so.9"),
        ("ur-loader-variable", "oneapi", "ur-loader", "libur_loader.so.0"),
        ("ocl-icd-variable", "opencl", "opencl-loader", "libOpenCL.so.1"),
        ("khronos-icd-variable", "opencl", "opencl-loader", "libOpenCL.so.1"),
    ],
)
def test_each_static_runtime_is_told_where_it_is_not_at_home(
    mark: str, backend: str, name: str, own: str
) -> None:
    (found,) = of_file("app/_C.so", elf(marks=(Mark(mark, 5),)))
    assert (found.kind, found.backend, found.detail) == ("static", backend, f"{name} ({mark})")
    assert "static" not in [
        one.kind for one in of_file(own, elf(soname=own, marks=(Mark(mark, 5),)))
    ]


@pytest.mark.parametrize("mark", ["openmp-double-start", "mkl-verbose-end", "onednn-version-line"])
def test_libraries_of_the_cpu_that_were_linked_in_are_no_evidence(mark: str) -> None:
    assert of_file("app/_C.so", elf(marks=(Mark(mark, 5),))) == []


# Literals


def test_a_name_that_could_be_opened_is_stronger_than_one_in_a_sentence() -> None:
    exact = Literal("/usr/lib/libcuda.so.1", 10, ".rodata", True)
    inside = Literal("libcublas.so", 40, ".rodata", False)
    found = of_file("x.so", elf(literals=(inside, exact)))
    assert [(item.detail, item.weight, item.confidence, item.where) for item in found] == [
        ("/usr/lib/libcuda.so.1", "strong", "high", "host"),
        ("libcublas.so", "weak", "medium", "image"),
    ]


def test_a_library_that_is_needed_is_not_reported_as_opened_lazily_too() -> None:
    literal = Literal("libcudart.so.12", 10, ".rodata", True)
    found = of_file("x.so", elf("libcudart.so.12", literals=(literal,)))
    assert [item.kind for item in found] == ["needed"]


def test_names_of_providers_are_no_evidence_but_the_file_of_one_is() -> None:
    name = "libonnxruntime_providers_cuda.so"
    literal = Literal(name, 10, ".rodata", True)
    assert of_file("onnxruntime/capi/libonnxruntime.so.1", elf(literals=(literal,))) == []
    assert summary(of_file(f"onnxruntime/capi/{name}", elf())) == [("bundled", "cuda", name)]


def test_a_loader_for_all_vendors_is_context_only() -> None:
    literal = Literal("libOpenCL.so.1", 10, ".rodata", True)
    (found,) = of_file("cv2/cv2.abi3.so", elf(literals=(literal,)))
    assert (found.vendor, found.weight) == ("khronos", "weak")


def test_stubs_with_a_name_of_their_own_give_lazy_evidence_only() -> None:
    literal = Literal("libcudart.so", 10, ".rodata", True)
    facts = elf(soname="libstub_cudart.so", literals=(literal,))
    assert [item.kind for item in of_file("tilelang/lib/libstub_cudart.so", facts)] == ["dlopen"]


# Names in Python


def of_call(call: str, *names: str, reach: Reach = "import") -> list[tuple[str, str, str]]:
    load = PythonLoad("x/_lib.py", 7, call, names, reach=reach, owner="x==1")
    found = evidence(Inventory(python_loads=(load,)), CATALOGUE)
    assert {(item.kind, item.path, item.distribution) for item in found} <= {
        ("python-dlopen", "x/_lib.py", "x==1")
    }
    return [(item.detail, item.weight, item.confidence) for item in found]


def test_a_library_that_python_code_opens_is_evidence() -> None:
    assert of_call("CDLL", "/opt/rocm/lib/libamd_smi.so") == [("libamd_smi.so", "strong", "high")]
    assert of_call("CDLL", "libc.so.6") == []


def test_a_bare_name_stands_for_the_library_only_where_the_call_takes_bare_names() -> None:
    assert of_call("load_nvidia_dynamic_lib", "cudart") == [("libcudart.so", "strong", "high")]
    assert of_call("find_library", "cuda") == [("libcuda.so", "strong", "high")]
    assert of_call("CDLL", "cuda") == []


def test_names_that_a_run_computes_and_calls_that_no_import_gets_to_prove_less() -> None:
    assert of_call("CDLL", "*/cublas/lib/libcublas.so.*") == [
        ("libcublas.so.*", "weak", "medium"),
    ]
    for reach in ("lazy", "unknown"):
        assert of_call("CDLL", "libcuda.so.1", reach=reach) == [("libcuda.so.1", "weak", "high")]
    assert of_call("register_fake", "torchvision::nms") == []


# Tools and other files


def test_tools_are_known_by_their_names_and_bitcode_by_name_is_a_tool() -> None:
    nvptx, amdgcn = (code("bitcode", "bitcode", arch) for arch in ("nvptx64", "amdgcn"))
    inventory = Inventory(
        binaries=(Binary("triton/backends/nvidia/bin/ptxas", 50, elf(kind="exec"), "triton==3"),),
        artefacts=(
            Artefact("triton/nvidia/lib/libdevice.10.bc", 40, "bc", "triton==3", (nvptx,)),
            Artefact("triton/backends/amd/lib/ocml.bc", 30, "bc", "triton==3", (amdgcn,)),
        ),
    )
    found = evidence(inventory, CATALOGUE)
    assert [(item.kind, item.backend, item.size) for item in found] == [
        ("tool", "rocm", 30),
        ("tool", "cuda", 50),
        ("tool", "cuda", 40),
    ]


# Packages and environment


def test_installed_distributions_and_system_packages_declare_what_they_are() -> None:
    inventory = Inventory(
        distributions=(
            Distribution("nvidia-cublas", "13.1.1.3", "nvidia_cublas-13.1.1.3.dist-info"),
            Distribution("numpy", "2.4.6", "numpy-2.4.6.dist-info"),
            Distribution("torch", "2.9.0+cpu", "torch-2.9.0+cpu.dist-info"),
        ),
        system_packages=(
            SystemPackage("libcudnn9-cuda-12", "9.8.0"),
            SystemPackage("bash", "5.2"),
        ),
    )
    found = evidence(inventory, CATALOGUE)
    assert [(item.kind, item.detail, item.distribution) for item in found] == [
        ("declared", "system package libcudnn9-cuda-12 9.8.0", None),
        ("declared", "nvidia-cublas 13.1.1.3", "nvidia-cublas==13.1.1.3"),
    ]


def environment(**variables: str) -> list[tuple[str, str, str | None]]:
    found = evidence(Inventory(environment=variables), CATALOGUE)
    return [(item.backend, item.weight, item.toolkit) for item in found]


def test_a_vendors_variables_are_evidence() -> None:
    assert environment(CUDA_VERSION="12.8.1") == [("cuda", "strong", "12")]
    assert environment(NVIDIA_VISIBLE_DEVICES="all") == [("cuda", "strong", None)]
    assert environment(PATH="/usr/local/cuda/bin:/usr/bin") == [("cuda", "strong", None)]
    assert environment(ROCM_PATH="/opt/rocm") == [("rocm", "strong", None)]


def test_variables_that_switch_a_vendor_off_are_not() -> None:
    assert environment(NVIDIA_VISIBLE_DEVICES="void", PATH="/usr/bin", HOME="/root") == []


# The whole


def test_each_file_of_a_large_image_is_matched() -> None:
    facts = elf("libc.so.6", "libstdc++.so.6", "libcudart.so.12", code=(FATBIN,))
    binaries = tuple(
        Binary(f"lib/python/site-packages/p{number}/m{number}.so", 10, facts)
        for number in range(2000)
    )
    found = evidence(Inventory(binaries=binaries), CATALOGUE)
    assert len(found) == 4000


def test_the_order_does_not_depend_on_the_order_of_the_facts() -> None:
    binaries = tuple(Binary(f"{name}.so", 1, elf("libcudart.so.12")) for name in "bca")
    forward = evidence(Inventory(binaries=binaries), CATALOGUE)
    assert forward == evidence(Inventory(binaries=binaries[::-1]), CATALOGUE)


def test_a_name_in_a_table_of_rust_counts_as_one_that_is_passed_on() -> None:
    def asked(literal: Literal) -> list[str]:
        elf = Elf(64, True, "x86_64", "exec", literals=(literal,))
        found = Inventory(binaries=(Binary("wandb/bin/wandb-symon", 1000, elf),))
        return [f"{one.detail} {one.weight}" for one in evidence(found, load())]

    assert asked(Literal("libnvidia-ml.so.1", 10, packed=True)) == ["libnvidia-ml.so.1 strong"]
    assert asked(Literal("libnvidia-ml.so.1", 10)) == ["libnvidia-ml.so.1 weak"]


@pytest.mark.parametrize(
    ("names", "backend", "weight", "where"),
    [
        # Installed by public Dockerfiles for UBI 9: NVIDIA's, Red Hat's, AMD's and Intel's.
        (
            "cuda-cudart-12-8 cuda-compat-12-8 cuda-libraries-12-8 cuda-nvtx-12-8 libnpp-12-8 "
            "libcublas-12-8 libcublas-devel-12-8 libnccl libnccl-devel libcudnn9-cuda-12 "
            "libcudnn9-devel-cuda-12 libcudnn8 cuda-command-line-tools-12-8 cuda-nvcc-12-8 "
            "cuda-minimal-build-12-8 cuda-nvml-devel-12-8 libcudss0-cuda-13 libcutensor2-cuda-12 "
            "libnvshmem3-cuda-12 libcusparselt0-cuda-12 libnvfatbin-12-8 libnvinfer10 cudnn9",
            "cuda",
            "strong",
            "image",
        ),
        ("nvidia-driver-cuda-libs nvidia-driver-NVML nvidia-driver-libs", "cuda", "strong", "host"),
        (
            "rocm-core rocm-hip-runtime rocm-ml-sdk rocm-developer-tools rocm-runtime "
            "rocm-core6.4.2 hip-runtime-amd hip-runtime-amd6.4.2 hipblaslt rocblas6.4.2 miopen-hip "
            "rccl rccl6.4.2 hsa-rocr comgr amdrocm-core-sdk amdrocm-blas migraphx-devel",
            "rocm",
            "strong",
            "image",
        ),
        (
            "intel-oneapi-compiler-dpcpp-cpp-runtime-2025.2 intel-oneapi-runtime-dpcpp-cpp "
            "intel-oneapi-ccl-2021.16 intel-level-zero-gpu intel-compute-runtime oneapi-level-zero",
            "oneapi",
            "strong",
            "image",
        ),
        ("intel-oneapi-tbb-2022.2 intel-oneapi-mpi-2021.16", "oneapi", "weak", "image"),
    ],
)
def test_names_of_vendors_rpms_are_known(names: str, backend: str, weight: str, where: str) -> None:
    for name in names.split():
        best = load().system_packages.find(name)[:1]
        found = [(owned.backend, owned.entry.weight, owned.entry.where) for owned in best]
        assert found == [(backend, weight, where)], name


def test_packages_of_nobody_are_no_evidence() -> None:
    for name in ("libnccl-net-plugins-common", "cudatext", "rocky-release", "half", "hiredis"):
        assert load().system_packages.find(name) == [], name
