"""Findings and verdicts say the same: an error means bloat or broken, and the other way round."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TypeVar

import pytest
from corpus_agreement import contradictions, judgement
from rulecases import SITE, codes, elf, file, hip, image, only, sass

import buildmatrix.catalogue as catalogue_data
from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Binary, ClosedFile, PythonImport, PythonLoad
from buildmatrix.judge.judging import Judgement
from buildmatrix.judge.model import Finding, Verdict

Look = TypeVar("Look")
BACKENDS = ("cpu", "cuda", "rocm", "oneapi", "openvino", "npu", "vulkan")


def the(said: Judgement, name: str) -> tuple[Verdict, list[Finding]]:
    (verdict,) = (one for one in said.verdicts if one.name == name)
    return verdict, [one for one in said.findings if name in one.distributions]


def opens(names: Sequence[str], owner: str = "demo==1") -> PythonLoad:
    return PythonLoad(
        f"{SITE}/demo/__init__.py", 3, "CDLL", tuple(names), reach="import", owner=owner
    )


def _named() -> Iterator[tuple[str, str]]:
    folder = Path(catalogue_data.__file__).parent / "data"
    for path in folder.glob("*.toml"):
        for entry in tomllib.loads(path.read_text()).get("distributions", ()):
            for glob in entry["names"]:
                name, _, local = glob.partition("+")
                version = f"1.0+{local.replace('*', '1')}" if local else "1.0"
                yield name.replace("*", "x"), version


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_name_of_the_catalogue_is_judged_as_it_is_reported(backend: str) -> None:
    for name, version in sorted(set(_named())):
        said = judgement(backend, image(installed=[f"{name} {version}"], root=False))
        assert list(contradictions(said, backend)) == []


#: Names whose files decide: unknown, made for one backend, builds of a family, wheels for several.
NAMES = ("demo 1", "triton 3.9.0", "torchao 0.18.0", "torch 2.9.0", "onnxruntime-gpu 1.31.1")
NAMES += (
    "ctranslate2 4.8.5",
    "intel-openmp 2026.2.0",
    "nvidia-nccl-cu12 2.28",
    "bitsandbytes 0.50",
)


def _files(owner: str) -> Iterator[tuple[Binary, ...]]:
    for size in (700_000, 70_000_000):
        yield (file("d/libcudart.so.12", elf("libcudart.so.12"), owner, size),)
        yield (file("d/libamdhip64.so.7", elf("libamdhip64.so.7"), owner, size),)
        yield (file("d/_C.abi3.so", elf(device_code=sass("sm_80", size=size)), owner, size),)
        yield (file("d/_C.abi3.so", elf(device_code=hip("gfx942", size=size)), owner, size),)
        yield (file("d/bin/ptxas", elf(), owner, size),)
        yield (
            file("d/bin/ptxas", elf(), owner, size),
            file("d/_C.abi3.so", elf(device_code=hip("gfx942", size=600_000)), owner, size),
        )
    for needed in ("libcudart.so.13", "libamdhip64.so.7", "libsycl.so.9", "libcuda.so.1"):
        module = file("d/_C.abi3.so", elf(needed=[needed]), owner)
        yield (module,)
        yield (replace(module, reach="guarded"),)
        yield (file("d/libplugin.so", elf(needed=[needed]), owner),)
        yield module, file(f"other/{needed}", elf(needed), "other 1", 900_000)
    yield (file("d/_C.abi3.so", elf(literals=["libcuda.so.1"]), owner),)
    yield (file("d/_C.abi3.so", elf(), owner),)


def triples(backend: str, looks: Sequence[Look]) -> Iterator[tuple[str, tuple[Binary, ...], Look]]:
    """Yield names, files and looks so that each three of backend, name, files and look meet.

    Each four of them are as many times more as there are looks.
    """
    for number, owner in enumerate(NAMES, BACKENDS.index(backend)):
        for look, files in enumerate(_files(owner), number):
            yield owner, files, looks[look % len(looks)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_of_every_kind_are_judged_as_they_are_reported(backend: str) -> None:
    for owner, files, root in triples(backend, (True, False)):
        said = judgement(backend, image(*files, root=root))
        assert list(contradictions(said, backend)) == [], (owner, files)


def _in_part(files: Sequence[Binary], linked: bool, data: int) -> tuple[Binary, ...]:
    """The files as a look sees them that ends before their ends."""
    return tuple(
        replace(
            one,
            elf=replace(
                one.elf,
                needed=one.elf.needed if linked else (),
                linked_names=() if linked else one.elf.needed,
                dynamic_read=linked,
                read=100_000,
                unread_data=data,
            ),
        )
        for one in files
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_that_were_read_in_part_are_judged_as_they_are_reported(backend: str) -> None:
    for owner, files, look in triples(backend, tuple(product((True, False), (1_000, 200_000_000)))):
        part = _in_part(files, *look)
        said = judgement(backend, image(*part, root=False))
        assert list(contradictions(said, backend)) == [], (owner, part)


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_that_were_not_opened_are_judged_as_they_are_reported(backend: str) -> None:
    for name, files, (path, size, by) in triples(
        backend,
        (
            ("d/lib.so", 90_000_000, "name"),
            ("d/data", 90_000_000, "size"),
            ("d/__init__.py", 9_000, "name"),
        ),
    ):
        closed = ClosedFile(path, size, "==".join(name.split()), by=by)
        tree = replace(image(*files, root=False), closed=(closed,))
        assert list(contradictions(judgement(backend, tree), backend)) == [], files


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_required_is_judged_as_it_is_reported(backend: str) -> None:
    for line in ("nvidia-nccl-cu12", "torch>=2", "onnxruntime-gpu", "dpcpp-cpp-rt", "mkl"):
        alone = image(installed=["demo 1"], requires={"demo": [line]}, root=False)
        assert list(contradictions(judgement(backend, alone), backend)) == []


# BM502


def test_what_cannot_be_imported_fails_the_run() -> None:
    tree = replace(image(installed=["demo 1"]), python_loads=(opens(["libcudart.so.12"]),))
    verdict, found = the(judgement("cpu", tree), "demo")
    one = only(found, "BM502")
    assert (verdict.verdict, one.severity, one.vendor) == ("broken", "error", "nvidia")
    assert "cannot be imported on cpu: its import loads libcudart.so.12" in one.message
    assert one.chain[-2:] == (f"{SITE}/demo/__init__.py:3", "libcudart.so.12")
    assert codes(found) == ["BM502 demo"]


def test_a_call_into_what_needs_the_device_fails_the_run() -> None:
    calls = PythonImport(
        path=f"{SITE}/demo/__init__.py", line=1, module="numba_cuda", how="called", owner="demo==1"
    )
    tree = replace(image(installed=["demo 1"]), python_imports=(calls,))
    verdict, found = the(judgement("cpu", tree), "demo")
    assert (verdict.verdict, codes(found, "error")) == ("broken", ["BM502 demo"])


def test_who_fails_with_a_broken_import_is_named_in_its_finding_and_not_once_more() -> None:
    imports = PythonImport(
        path=f"{SITE}/app/__init__.py",
        line=1,
        module="demo",
        how="imported",
        owner="app==2",
        provider="demo==1",
    )
    tree = replace(
        image(installed=["demo 1", "app 2"]),
        python_loads=(opens(["libcudart.so.12"]),),
        python_imports=(imports,),
    )
    said = judgement("cpu", tree)
    assert {one.name: one.verdict for one in said.verdicts} == {"app": "broken", "demo": "broken"}
    assert "with it fails app, which imports it" in only(said.findings, "BM502").message


def test_a_library_of_another_line_that_python_opens_fails_the_run() -> None:
    tree = replace(image(installed=["demo 1"]), python_loads=(opens(["libcudart.so.12"]),))
    assert the(judgement("cuda", tree, "13.0"), "demo")[0].verdict == "broken"
    assert the(judgement("cuda", tree, "12.8"), "demo")[0].verdict == "ok"
    either = replace(tree, python_loads=(opens(["libcudart.so.13", "libcudart.so.12"]),))
    assert the(judgement("cuda", either, "13.0"), "demo")[0].verdict == "ok"


def test_a_library_without_a_version_that_an_import_loads_fails_the_run() -> None:
    # cufile-python 0.2.0: `libcufile = ctypes.CDLL("libcufile.so")` in cufile/bindings.py.
    tree = replace(image(installed=["demo 1"]), python_loads=(opens(["libcufile.so"]),))
    verdict, found = the(judgement("cpu", tree), "demo")
    assert (verdict.verdict, only(found, "BM502").severity) == ("broken", "error")


# BM110


def test_a_wheel_alone_that_requires_another_backends_is_an_error() -> None:
    requires = {"demo": ["nvidia-nccl-cu12", "numpy"]}
    tree = image(installed=["demo 1"], requires=requires, root=False)
    verdict, found = the(judgement("rocm", tree), "demo")
    one = only(found, "BM110")
    assert (verdict.verdict, one.severity) == ("bloat", "error")
    assert one.chain == ("demo 1", "nvidia-nccl-cu12")
    assert the(judgement("cuda", tree), "demo")[1] == []
    beside = image(installed=["demo 1", "nvidia-nccl-cu12 2.28"], requires=requires, root=False)
    assert codes(judgement("rocm", beside).findings) == ["BM101 nvidia-nccl-cu12"]


# Names against bytes


def test_a_build_for_another_backend_that_works_and_weighs_little_is_no_error() -> None:
    extension = replace(
        file("torchao/_C.abi3.so", elf(needed=["libcudart.so.13"]), "torchao 0.18.0"),
        reach="guarded",
    )
    verdict, found = the(judgement("cpu", image(extension)), "torchao")
    assert (verdict.verdict, only(found, "BM104").severity) == ("optional", "warning")
    verdict, found = the(judgement("cpu", image(installed=["torchao 0.18.0"])), "torchao")
    assert (verdict.verdict, only(found, "BM104").severity) == ("bloat", "error")


def test_what_is_expected_here_may_hold_a_little_of_its_vendor() -> None:
    adapter = file("lib/libur_adapter_level_zero.so.0", elf(), "intel-cmplr-lib-ur 2026.2.0")
    said = judgement("cpu", image(adapter, installed=["mkl 2026.2.0"]))
    assert the(said, "intel-cmplr-lib-ur")[0].verdict == "ok"
    assert codes(said.findings, "error", "warning") == []


# Another toolkit line


def test_what_is_made_for_another_line_is_of_no_use_as_its_finding_says() -> None:
    tree = image(installed=["nvidia-cublas-cu12 12.9.1"], root=False)
    sized = tuple(replace(one, size=600_000_000) for one in tree.distributions)
    tree = replace(tree, distributions=sized)
    said = judgement("cuda", tree, "13.0")
    verdict, found = the(said, "nvidia-cublas-cu12")
    assert only(found, "BM103").severity == "error"
    assert (verdict.verdict, verdict.certain, verdict.foreign_bytes) == ("bloat", True, 600_000_000)
    assert "is for NVIDIA CUDA 12" in verdict.reason
    assert list(contradictions(said, "cuda")) == []
    assert the(judgement("cuda", tree, "12.8"), "nvidia-cublas-cu12")[0].verdict == "ok"


@pytest.mark.parametrize("by", ["link", "requirement"])
def test_what_something_loads_is_of_another_line_and_not_wasted(by: str) -> None:
    libraries = "nvidia-cublas-cu12 12.9.1"
    path = "nvidia/cublas/lib/libcublas.so.12"
    needed = ["libcublas.so.12"] if by == "link" else []
    tree = image(
        file(path, elf("libcublas.so.12"), libraries),
        file("demo/_C.abi3.so", elf(needed=needed), "demo 1"),
        requires={"demo": ["nvidia-cublas-cu12"]} if by == "requirement" else {},
        sizes={"nvidia-cublas-cu12": 600_000_000},
        root=False,
    )
    said = judgement("cuda", tree, "13.0")
    verdict, found = the(said, "nvidia-cublas-cu12")
    assert only(found, "BM103").severity == "error"
    assert (verdict.verdict, verdict.foreign_bytes) == ("bloat", 0)
    assert list(contradictions(said, "cuda")) == []


def of_line(needed: Sequence[str], path: str = "demo/_C.abi3.so", owner: str = "demo 1") -> Binary:
    return file(path, elf(needed=needed), owner)


def test_an_import_that_links_another_line_is_broken_where_nothing_brings_it() -> None:
    tree = image(of_line(["libcudart.so.12", "libcublas.so.12"]), root=False)
    verdict, found = the(judgement("cuda", tree, "13.0"), "demo")
    one = only(found, "BM302")
    assert (verdict.verdict, one.severity) == ("broken", "error")
    assert "libcudart.so.12 is of NVIDIA CUDA 12, and this target is for NVIDIA CUDA 13" in (
        one.message
    )
    # A base image of the target's line brings its libraries; nobody knows the line of `any`.
    for runtime in ("12.8", "any"):
        verdict, found = the(judgement("cuda", tree, runtime), "demo")
        assert (verdict.verdict, found) == ("ok", [])


@pytest.mark.parametrize(
    ("backend", "runtime", "needed", "expected"),
    [
        ("cuda", "12.8", "libcurand.so.10", "ok"),
        ("cuda", "13.0", "libcusparse.so.12", "ok"),
        ("cuda", "11.8", "libcusparse.so.12", "broken"),
        ("cuda", "11.8", "libcusolver.so.11", "ok"),
        ("cuda", "13.0", "libcusolver.so.11", "broken"),
        ("cuda", "12.8", "libcufft.so.11", "ok"),
        ("cuda", "12.8", "libcufft.so.12", "broken"),
        ("cuda", "12.8", "libcudnn.so.9", "ok"),
        ("rocm", "7.0", "libamdhip64.so.6", "broken"),
        ("rocm", "7.0", "librocm_smi64.so.7", "ok"),
        ("rocm", "6.4", "libhipblas.so.2", "ok"),
        ("oneapi", "2025.0", "libsycl.so.7", "broken"),
        ("oneapi", "2025.0", "libsycl.so.8", "ok"),
    ],
)
def test_the_version_of_a_soname_is_not_that_of_the_toolkit(
    backend: str, runtime: str, needed: str, expected: str
) -> None:
    tree = image(of_line([needed]), root=False)
    assert the(judgement(backend, tree, runtime), "demo")[0].verdict == expected


def test_another_line_that_the_lock_or_the_wheel_brings_is_found_by_the_loader() -> None:
    module = of_line(["libcudart.so.12"])
    runtime = file("nvidia/lib/libcudart.so.12", elf("libcudart.so.12"), "rt 1")
    own = file("demo.libs/libcudart.so.12", elf("libcudart.so.12"), "demo 1")
    for brought in (runtime, own):
        said = judgement("cuda", image(module, brought, root=False), "13.0")
        assert the(said, "demo")[0].verdict == "ok"
        assert "BM302" not in {one.rule for one in said.findings}
    requires = {"demo": ["nvidia-cuda-runtime-cu12"]}
    alone = image(module, requires=requires, root=False)
    assert the(judgement("cuda", alone, "13.0"), "demo") == (
        the(judgement("cuda", alone, "12.8"), "demo")[0],
        [],
    )


PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"


def test_most_of_a_distribution_in_another_line_is_broken() -> None:
    owner = "onnxruntime-gpu 1.31.1"
    provider = replace(
        of_line(["libcudart.so.13", "libcudnn.so.9"], PROVIDER, owner), size=284_000_000
    )
    module = replace(file("onnxruntime/capi/_state.so", elf(), owner), reach="import")
    tree = image(module, provider, root=False)
    verdict, found = the(judgement("cuda", tree, "12.9"), "onnxruntime-gpu")
    assert (verdict.verdict, codes(found)) == ("broken", ["BM302 onnxruntime-gpu"])
    assert the(judgement("cuda", tree, "13.0"), "onnxruntime-gpu")[0].verdict == "ok"
    older = of_line(["libcudart.so.12"], "onnxruntime/capi/libolder.so", owner)
    verdict, found = the(
        judgement("cuda", image(module, provider, older, root=False), "12.9"), "onnxruntime-gpu"
    )
    assert (verdict.verdict, codes(found, "error")) == ("optional", [])


def test_of_variants_for_several_lines_one_is_enough() -> None:
    variants = [
        replace(
            of_line([f"libcudart.so.{line}"], f"bnb/libbnb_cuda{line}.so", "bitsandbytes 0.50.2"),
            reach="chosen",
            reached_from="bnb/cextension.py:20",
        )
        for line in ("11.0", "12", "13")
    ]
    tree = image(*variants, root=False)
    for runtime in ("11.8", "12.8", "13.0"):
        verdict, found = the(judgement("cuda", tree, runtime), "bitsandbytes")
        assert verdict.verdict != "broken" and codes(found, "error") == []
    verdict, found = the(
        judgement("cuda", image(*variants[:2], root=False), "13.0"), "bitsandbytes"
    )
    assert (verdict.verdict, codes(found, "error")) == ("broken", ["BM302 bitsandbytes"])


def test_what_an_import_survives_of_another_line_is_optional() -> None:
    module = replace(of_line(["libcudart.so.12"]), reach="guarded")
    verdict, found = the(judgement("cuda", image(module, root=False), "13.0"), "demo")
    assert (verdict.verdict, codes(found, "warning")) == ("optional", ["BM302 demo"])


def test_most_distributions_say_the_line_where_the_target_does_not() -> None:
    tree = image(
        of_line(["libcudart.so.12"]),
        installed=["nvidia-cublas-cu13 13.0", "nvidia-nccl-cu13 2.28"],
        root=False,
    )
    assert the(judgement("cuda", tree), "demo")[0].verdict == "broken"


# What needs a device


def test_what_is_for_the_device_alone_is_broken_elsewhere_and_a_library_is_bloat() -> None:
    names = ("cudf-cu12 26.10.2", "cupy-cuda12x 14.2.0", "nvidia-cublas-cu12 12.9")
    for backend in ("cpu", "rocm"):
        said = judgement(backend, image(installed=names, root=False))
        verdicts = {one.name: one.verdict for one in said.verdicts}
        assert verdicts == {
            "cudf-cu12": "broken",
            "cupy-cuda12x": "bloat",
            "nvidia-cublas-cu12": "bloat",
        }
        assert codes(said.findings, "error") == [
            "BM101 cudf-cu12",
            "BM101 cupy-cuda12x",
            "BM101 nvidia-cublas-cu12",
        ]
    said = judgement("cuda", image(installed=names, root=False), "12.8")
    assert {one.verdict for one in said.verdicts} == {"ok"}


def test_what_imports_it_can_be_imported_all_the_same() -> None:
    imports = PythonImport(
        f"{SITE}/app/__init__.py", 1, "cudf", "imported", "app==2", "cudf-cu12==26.10.2"
    )
    tree = replace(image(installed=["cudf-cu12 26.10.2", "app 2"]), python_imports=(imports,))
    assert the(judgement("cpu", tree), "app")[0].verdict == "ok"
