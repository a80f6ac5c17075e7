"""Single questions: whose is this name?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.lookup import distribution, image, library
from buildmatrix.catalogue.model import DistributionMatch

CATALOGUE = load()


def owners(name: str, path: str | None = None) -> set[tuple[str, str]]:
    return {(match.owned.backend, match.weight) for match in library(name, path, CATALOGUE)}


def match_of(name: str, version: str) -> DistributionMatch:
    match = distribution(name, version, CATALOGUE)
    assert match is not None
    return match


# Libraries


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("libcudart.so.12", "cuda"),
        ("libnccl.so.2.30.7", "cuda"),
        ("libcudnn_engines_runtime_compiled.so.9", "cuda"),
        ("libcuda.so.1", "cuda"),
        ("libamdhip64.so.7", "rocm"),
        ("libtorch_hip.so", "rocm"),
        ("libsycl.so.8", "oneapi"),
        ("libmkl_sycl_blas.so.5", "oneapi"),
        ("libtorch_xpu.so", "oneapi"),
        ("libtpu.so", "tpu"),
        ("libhsa-runtime64.so", "rocm"),
        ("libnccl.so.3", "cuda"),
    ],
)
def test_vendors_libraries_are_told_by_name(name: str, backend: str) -> None:
    assert owners(name) == {(backend, "strong")}


@pytest.mark.parametrize(
    "name",
    [
        *("libicudata.so.73", "libcups.so.2", "libcurl.so.4", "libgomp.so.1", "libacl.so.1"),
        *("libmkl_core.so.3", "libiomp5.so", "libtbb.so.12", "libopenvino.so.2641"),
        *("libtorch_cpu.so", "libc10.so", "libonnxruntime.so.1.31.1", "libdrm_amdgpu.so.1"),
        *("libc.so.6", "libcudalike.so", "_nrt_python.cpython-311-x86_64-linux-gnu.so"),
        *("libstub_cudart.so", "libscipy_openblas64_-fdde5778.so", "libruntime.so"),
    ],
)
def test_names_that_only_look_like_a_vendors_are_nobodys(name: str) -> None:
    assert owners(name) == set()


@given(
    st.sampled_from(["libcudart.so.12", "libcurand.so.10", "libamdhip64.so.6", "libsycl.so.8"]),
    st.text("0123456789abcdef", min_size=8, max_size=8),
    st.sampled_from("-."),
)
def test_a_mangled_name_is_the_same_library(name: str, digest: str, mark: str) -> None:
    stem, version = name.split(".so")
    mangled = f"{stem}{mark}{digest}.so{version}"
    assert library(mangled, None, CATALOGUE) == library(name, None, CATALOGUE)


@given(
    st.sampled_from(["libgomp.so", "libhwloc.so.15", "libmkl_rt.so", "libdrm.so.2", "libc10.so"]),
    st.lists(st.integers(0, 99).map(str), max_size=3),
)
def test_neutral_wins_in_every_version(name: str, components: list[str]) -> None:
    assert owners(".".join([name, *components])) == set()


def test_a_common_name_counts_only_in_the_vendors_folder() -> None:
    assert owners("libruntime.so", "usr/lib/libruntime.so") == set()
    path = "usr/local/Ascend/ascend-toolkit/latest/lib64/libruntime.so"
    assert owners("libruntime.so", path) == {("npu", "strong")}


def test_what_the_cpu_package_mkl_brings_of_an_accelerators_is_context_only() -> None:
    assert owners("libumf.so.1") == owners("libur_adapter_level_zero.so.0") == {("oneapi", "weak")}


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *(("libhailort.so.4", "hailo"), ("libtopsrt.so", "gcu"), ("libmcruntime.so", "maca")),
        *(("libbmrt.so.1", "sophon"), ("libfuriosa_runtime.so", "furiosa")),
        *(("libd3d12core.so", "directml"), ("libxrt_core.so.2", "xdna")),
    ],
)
def test_accelerators_of_which_only_names_are_known_are_told_apart(name: str, backend: str) -> None:
    assert owners(name) == {(backend, "strong")}


def test_an_import_that_survives_without_cuda_does_not_make_a_wheel_cudas_alone() -> None:
    for name in ("xformers", "torchao"):
        match = distribution(name, "1.0", CATALOGUE)
        assert match is not None
        assert (match.kind, match.weight) == ("default-build", "weak")


@pytest.mark.parametrize(
    ("name", "toolkit"),
    [
        ("libcudart.so.11.0", "11"),
        ("libcudart.so.12.8.90", "12"),
        ("libcufft.so.11", "12"),
        ("libcufft.so.12", "13"),
        ("libcusparse.so.12", None),
        ("libcurand.so.10", None),
        ("libhipblas.so.3", "7"),
        ("libsycl.so.8", "2025"),
        ("libcudart.so", None),
    ],
)
def test_the_toolkit_is_not_the_sonames_number(name: str, toolkit: str | None) -> None:
    assert {match.toolkit for match in library(name, None, CATALOGUE)} == {toolkit}


# Distributions


@pytest.mark.parametrize(
    ("name", "version", "backend", "toolkit"),
    [
        ("nvidia-cublas-cu12", "12.8.4.1", "cuda", "12"),
        ("nvidia-cudnn-cu13", "9.24.0.43", "cuda", "13"),
        ("nvidia-cublas", "13.1.1.3", "cuda", "13"),
        ("nvidia-cufft", "12.0.0.61", "cuda", "13"),
        ("cuda-toolkit", "13.0.2", "cuda", "13"),
        ("cuda-bindings", "12.9.4", "cuda", "12"),
        ("cupy-cuda13x", "14.2.0", "cuda", "13"),
        ("spconv-cu120", "2.3.6", "cuda", "12"),
        ("torch", "2.8.0+cu128", "cuda", "12"),
        ("torchvision", "0.24.0+cu130", "cuda", "13"),
        ("flash-attn", "2.7.4+cu12torch2.4cxx11abiFALSE", "cuda", "12"),
        ("torch-scatter", "2.1.2+pt21cu121", "cuda", "12"),
        ("torch-scatter", "2.1.2+pt24cu124", "cuda", "12"),
        ("gsplat", "1.5+cu128torch2.8.0", "cuda", "12"),
        ("gsplat", "1.5+torch280cu128", "cuda", "12"),
        ("natten", "0.2+cu130torch29", "cuda", "13"),
        ("mxnet", "2.0+cuda112", "cuda", "11"),
        ("jaxlib", "0.4+cuda12.cudnn89", "cuda", "12"),
        ("demo", "1.0+cuda.13.4", "cuda", "13"),
        ("paddlepaddle-gpu", "2.6.2.post120", "cuda", "12"),
        ("paddlepaddle-gpu", "2.6.2.post112", "cuda", "11"),
        ("jaxlib", "0.4+rocm611", "rocm", "6"),
        ("torch-scatter", "2.1.2+pt24rocm6.2", "rocm", "6"),
        ("torch", "2.8.0+rocm6.4", "rocm", "6"),
        ("torch", "2.14.1+rocm7.14", "rocm", "7"),
        ("jax-rocm7-plugin", "0.10.2", "rocm", "7"),
        ("torch", "2.8.0+xpu", "oneapi", None),
        ("dpctl", "0.22.1", "oneapi", None),
    ],
)
def test_distributions_tell_backend_and_toolkit(
    name: str, version: str, backend: str, toolkit: str | None
) -> None:
    match = match_of(name, version)
    assert (match.backend, match.toolkit, match.weight) == (backend, toolkit, "strong")


@pytest.mark.parametrize(
    ("version", "backend"),
    [
        *(("1.0+pt20cpu", "cpu"), ("1.0+cpu.cxx11.abi", "cpu"), ("1.0+torch2.1.cpu", "cpu")),
        *(("1.0+vacuum12", None), ("1.0+git1cafe128", None), ("1.0+cpuinfo", None)),
        *(("1.0+cu1281", None), ("1.0+mxpu", None), ("1.0.post120", None)),
    ],
)
def test_a_local_version_says_a_backend_or_none(version: str, backend: str | None) -> None:
    match = distribution("demo", version, CATALOGUE)
    assert (match.backend if match is not None else None) == backend


def test_bindings_and_parts_of_rocm_are_amds() -> None:
    for name, weight in (
        ("rocm-bindings-libraries", "strong"),
        ("amd-hipblas-instinct", "strong"),
        ("openmm-hip-7", "strong"),
        ("pyrsmi", "weak"),
    ):
        match = match_of(name, "1.0")
        assert (match.backend, match.weight) == ("rocm", weight)


def test_a_library_with_builds_for_several_vendors_is_nobodys() -> None:
    assert owners("libmagma.so.2") == set()


def test_a_local_version_wins_over_what_the_name_is_by_default() -> None:
    assert match_of("torch", "2.8.0").kind == "default-build"
    cpu = match_of("torch", "2.8.0+cpu")
    assert (cpu.backend, cpu.vendor, cpu.weight) == ("cpu", None, "neutral")
    assert match_of("flash-attn", "2.8.0+rocm6.4").backend == "rocm"


def test_what_to_do_instead_survives_the_local_version() -> None:
    for version in ("2.8.0", "2.8.0+cu128"):
        order = match_of("torch", version).replace["cpu"]
        assert (order.action, order.target) == ("index", "cpu")


@pytest.mark.parametrize(
    ("name", "action", "target"),
    [
        ("xgboost", "use", "xgboost-cpu"),
        ("onnxruntime-gpu", "use", "onnxruntime"),
        ("tensorflow", "use", "tensorflow-cpu"),
        ("faiss-gpu-cu12", "use", "faiss-cpu"),
        ("nvidia-nccl-cu13", "remove", None),
        ("triton", "remove", None),
        ("catboost", "keep", None),
    ],
)
def test_replacements_on_cpu(name: str, action: str, target: str | None) -> None:
    order = match_of(name, "9.0").replace["cpu"]
    assert (order.action, order.target) == (action, target)


def test_one_wheel_for_several_backends_is_no_evidence_by_its_name() -> None:
    match = match_of("bitsandbytes", "0.50.2")
    assert (match.kind, match.weight) == ("multi-backend", "neutral")


@pytest.mark.parametrize("name", ["requests", "pandas", "nvidious", "my-cuda-notes"])
def test_unknown_distributions_are_unknown(name: str) -> None:
    assert distribution(name, "1.0", CATALOGUE) is None


# Images


@pytest.mark.parametrize(
    ("reference", "backend"),
    [
        ("nvidia/cuda:12.8.1-base-ubuntu22.04", "cuda"),
        ("localhost:5000/nvidia/cuda:12.8.1-base-ubuntu22.04", "cuda"),
        ("mirror.example.com/hub/rocm/pytorch@sha256:" + "0" * 64, "rocm"),
        ("docker.io/library/python:3.12-slim-bookworm", "cpu"),
        ("acme/service:1.0", None),
    ],
)
def test_base_images_are_told_by_repository_behind_any_mirror(
    reference: str, backend: str | None
) -> None:
    assert image(reference, CATALOGUE) == backend
