"""BM105 to BM109, and what the rules about files say of wheels that were read in part.

Letters are rows of docs/incidents.md.
"""

from __future__ import annotations

import pytest
from auditcases import closed, found, gained, judged, opened, subject
from rulecases import codes, elf, of_lock, only, pin, sass, target

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import SharedPath
from buildmatrix.judge.certainty import may_be, unopened
from buildmatrix.judge.judging import judge_wheels
from buildmatrix.locks.model import Staleness

CPU = target("cpu")
ROCM = target("rocm", "7.0", torch="rocm7.0")
CUDA = target("cuda", "12.8", torch="cu128")
ONEAPI = target("oneapi", "2025.0")


# BM105


def test_a_torch_that_was_never_built_for_that_rocm_is_named_with_the_nearest_that_was_a4() -> None:
    one = only(of_lock(ROCM, pin("torch 2.6.0+cu124", "base.in:2")), "BM105")
    assert "torch 2.6 has no build for AMD ROCm 7.0" in one.message
    assert "rocm6.2.4" in one.message
    assert "the nearest that has one is 2.10" in one.message
    assert one.fix is not None
    assert "torch==2.10.*" in one.fix.text
    assert one.chain == ("base.in:2", "torch 2.6.0+cu124")


def test_no_fix_sends_to_an_index_that_lacks_the_release() -> None:
    findings = of_lock(ROCM, pin("torch 2.6.0", "base.in:2"), pin("nvidia-nccl-cu12 2", "torch"))
    fixes = {one.rule: one.fix.text for one in findings if one.fix is not None}
    assert {"BM101", "BM104", "BM105"} <= fixes.keys()
    for text in fixes.values():
        assert "torch==2.10.*" in text


def test_the_family_follows_the_release_of_its_torch_to_an_index_that_serves_it() -> None:
    locked = pin("torch 2.8.0", "base.in:2"), pin("torchvision 0.23.0", "base.in:3")
    fixes = {
        finding.chain[-1]: finding.fix.text
        for finding in of_lock(target("rocm"), *locked, pin("nvidia-nccl-cu12 2", "torch"))
        if finding.rule == "BM104" and finding.fix is not None
    }
    assert fixes.keys() == {"torch 2.8.0", "torchvision 0.23.0"}
    assert all('such as uv\'s "rocm6.4"' in text for text in fixes.values())
    findings = of_lock(ROCM, *locked)
    vision = [finding for finding in findings if finding.chain[-1].startswith("torchvision")]
    assert "torch==2.10.*" in only(vision, "BM104").fix.text  # type: ignore[union-attr]


def test_a_release_that_has_a_build_for_the_runtime_is_only_taken_from_the_wrong_place() -> None:
    assert codes(of_lock(ROCM, pin("torch 2.10.0+cu128"))) == ["BM102 torch"]


def test_an_older_minor_of_the_line_is_a_build_for_it() -> None:
    where = target("rocm", "6.4")
    assert codes(of_lock(where, pin("torch 2.7.1+cu126"))) == ["BM102 torch"]


def test_a_release_that_the_catalogue_does_not_know_is_not_said_to_be_missing() -> None:
    assert codes(of_lock(ROCM, pin("torch 2.99.0+cu150"))) == ["BM102 torch"]


def test_a_target_without_a_runtime_lacks_a_build_only_when_no_runtime_has_one() -> None:
    assert "BM105 torch" in codes(of_lock(target("oneapi"), pin("torch 2.3.1+cu121")))
    assert "BM105 torch" not in codes(of_lock(target("rocm"), pin("torch 2.3.1+cu121")))


# BM106


def test_a_lock_older_than_its_inputs_is_named_a11() -> None:
    one = only(found(CPU, pin("numpy 2.4.6"), stale=Staleness("base.in has changed")), "BM106")
    assert (one.severity, one.chain) == ("error", (CPU.lock,))
    assert "base.in has changed" in one.message


def test_what_only_another_tool_can_tell_for_sure_fails_no_run() -> None:
    stale = Staleness("it seems to have changed", is_proven=False)
    one = only(found(CPU, pin("numpy 2.4.6"), stale=stale), "BM106")
    assert one.severity == "warning"
    assert "may not fit its inputs" in one.message


@pytest.mark.parametrize(
    ("lock", "command"),
    [
        ("uv.lock", "run `uv lock`"),
        ("app/poetry.lock", "run `poetry lock`"),
        ("Pipfile.lock", "run `pipenv lock`"),
        ("requirements.txt", "lock again with the tool that made it"),
        ("locks/pylock.cpu.toml", "run `buildmatrix lock`"),
    ],
)
def test_an_old_lock_is_made_anew_by_the_tool_that_made_it(lock: str, command: str) -> None:
    where = replace(CPU, lock=lock)
    one = only(found(where, pin("numpy 2.4.6"), stale=Staleness("it is old")), "BM106")
    assert one.fix is not None
    assert one.fix.text == f"{command}, and commit the result"


def test_a_current_lock_is_not() -> None:
    assert found(CPU, pin("numpy 2.4.6")) == ()


# BM107


def test_what_is_built_from_source_is_said_not_skipped_b12() -> None:
    package = replace(pin("physicsnemo 1.3.0", "base.in:4"), wheels=(), source_only=True)
    why = {"physicsnemo": "only its source code is published"}
    one = only(found(CUDA, package, without_wheel=why), "BM107")
    assert (one.severity, one.distribution) == ("warning", "physicsnemo")
    assert one.chain == ("base.in:4", "physicsnemo 1.3.0")


def test_a_source_build_that_was_asked_for_is_a_note() -> None:
    where = replace(CUDA, no_binary=("lmcache",))
    one = only(
        found(where, pin("lmcache 0.5.6"), without_wheel={"lmcache": "it is built"}), "BM107"
    )
    assert one.severity == "note"


# BM108

INDEX = "https://wheels.example.com/whl/"


def test_torch_from_another_index_than_the_one_that_is_given_is_found_a1() -> None:
    where = target("cuda", "12.8", index={"torch": INDEX + "cu128"})
    findings = of_lock(where, pin("torch 2.9.0", index="https://pypi.org/simple"))
    one = only(findings, "BM108")
    assert "https://pypi.org/simple" in one.message
    assert INDEX + "cu128" in one.message


def test_another_build_of_the_right_backend_is_not_the_one_that_is_routed_a18() -> None:
    assert codes(of_lock(CUDA, pin("torch 2.7.0+cu126"))) == ["BM108 torch"]
    assert codes(of_lock(ROCM, pin("torch 2.10.0+rocm7.1"))) == ["BM108 torch"]


def test_plain_torch_from_the_default_index_did_not_take_the_route() -> None:
    findings = of_lock(CUDA, pin("torch 2.9.0", index="https://pypi.org/simple"))
    assert codes(findings) == ["BM108 torch"]


def test_what_takes_the_route_stays_quiet() -> None:
    routed = INDEX + "cu128"
    for line in ("torch 2.9.0+cu128", "torch 2.9.0", "triton 3.5.0", "torchvision 0.24.0+cu128"):
        assert of_lock(CUDA, pin(line, index=routed)) == ()
    assert of_lock(CUDA, pin("numpy 2.4.6", index="https://pypi.org/simple")) == ()


@pytest.mark.parametrize("line", ["torch 2.10.0+cu128", "torch 2.10.0"])
def test_a_build_for_another_backend_is_said_once(line: str) -> None:
    where = target("rocm", "7.0", index={"torch": INDEX + "rocm7.0"})
    findings = of_lock(where, pin(line, index="https://pypi.org/simple"))
    assert len(codes(findings)) == 1


def test_a_lock_that_records_no_index_stays_quiet() -> None:
    where = target("cuda", "12.8", index={"torch": INDEX + "cu128"})
    assert of_lock(where, pin("torch 2.9.0")) == ()


# BM109


def test_two_lines_of_one_family_in_one_lock_are_named_together_b3() -> None:
    findings = found(
        CUDA,
        pin("cupy-cuda13x 14.0", "vllm"),
        pin("nixl-cu12 1.0", "vllm"),
        pin("nixl-cu13 1.0", "vllm"),
        pin("vllm 0.20.0", "base.in:7"),
    )
    one = only(findings, "BM109")
    assert one.distribution == "cupy-cuda13x"
    assert "cupy-cuda13x 14.0, nixl-cu13 1.0 beside nixl-cu12 1.0" in one.message
    assert one.chain == ("base.in:7", "vllm 0.20.0", "cupy-cuda13x 14.0")


def test_one_line_is_no_mix_even_when_it_is_the_wrong_one_b12() -> None:
    assert codes(found(CUDA, pin("nixl-cu13 1.0"), pin("nvidia-nccl-cu13 2"))) == [
        "BM103 nixl-cu13",
        "BM103 nvidia-nccl-cu13",
    ]


def test_what_was_asked_for_is_swapped_and_not_what_it_brings_b12() -> None:
    findings = found(
        CUDA, pin("cuml-cu13 26.10", "base.in:2"), pin("libcuml-cu13 26.10", "cuml-cu13")
    )
    fixes = {one.distribution: one.fix for one in findings if one.rule == "BM103"}
    assert set(fixes) == {"cuml-cu13", "libcuml-cu13"}
    for fix in fixes.values():
        assert fix is not None
        assert fix.patch == '[backend.cuda]\nreplace = { cuml-cu13 = "cuml-cu12" }\n'


def test_names_that_lost_their_line_with_cuda_13_are_the_twins_of_those_with_one() -> None:
    on_13 = target("cuda", "13.0", torch="cu130")
    for name, twin in [
        ("nvidia-cublas-cu12", "nvidia-cublas"),
        ("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    ]:
        one = only(found(on_13, pin(f"{name} 12.9", "base.in:1")), "BM103")
        assert one.fix is not None
        assert one.fix.patch == f'[backend.cuda]\nreplace = {{ {name} = "{twin}" }}\n'


def test_two_lines_of_a_foreign_backend_are_foreign_and_no_more() -> None:
    assert codes(found(CPU, pin("nixl-cu12 1.0"), pin("nixl-cu13 1.0"))) == [
        "BM101 nixl-cu12",
        "BM101 nixl-cu13",
    ]


# Files of wheels


def test_a_library_that_was_not_opened_is_known_by_its_name() -> None:
    findings = found(
        CPU,
        pin("demo 1.0", "base.in:1"),
        files=[closed("demo.libs/libcudart-9335f6a2.so.12", "demo 1.0", 700_000)],
    )
    one = only(findings, "BM201")
    assert one.chain == ("base.in:1", "demo 1.0", "demo.libs/libcudart-9335f6a2.so.12")
    assert {item.confidence for item in one.evidence} == {"medium"}


def test_tools_inside_triton_are_known_by_their_names_a8() -> None:
    findings = found(
        CPU,
        pin("triton 3.9.0", "base.in:1"),
        files=[closed("triton/backends/nvidia/bin/ptxas", "triton 3.9.0", 30_000_000)],
    )
    assert only(findings, "BM203").severity == "error"


def test_names_beside_the_dynamic_section_prove_no_link_and_leave_the_verdict_open() -> None:
    content = replace(
        elf(), linked_names=("libcudart.so.13", "libc.so.6"), read=65_536, dynamic_read=False
    )
    files = [opened("lmcache/c_ops.so", content, "lmcache 0.5.6")]
    where = subject(CPU, pin("lmcache 0.5.6"), files=files)
    assert judge_wheels(where).findings == ()
    (trace,) = where.foreign
    assert (trace.kind, trace.weight, trace.confidence) == ("needed", "weak", "low")
    gain = gained(where)["lmcache==0.5.6"]
    assert gain == "verdict"
    left = unopened(where)["lmcache==0.5.6"]
    assert may_be(judged(where)["lmcache"], left, gain) == "broken"


def test_a_library_is_not_said_to_link_itself() -> None:
    name = "libbitsandbytes_cuda118.so"
    content = replace(elf(), linked_names=(name,), read=65_536, dynamic_read=False)
    file = opened(f"bitsandbytes/{name}", content, "bitsandbytes 0.50.2")
    where = subject(CPU, pin("bitsandbytes 0.50.2"), files=[file])
    assert not [one for one in where.evidence if one.kind == "needed"]


def test_a_link_of_which_no_python_was_read_is_no_error_yet() -> None:
    files = [
        opened("demo/_C.so", elf(needed=["libcudart.so.13"]), "demo 1.0"),
        closed("demo/__init__.py", "demo 1.0", 2_000),
    ]
    assert only(found(CPU, pin("demo 1.0"), files=files), "BM301").severity == "warning"
    assert only(found(CPU, pin("demo 1.0"), files=files[:1]), "BM301").severity == "error"


def test_bytes_of_what_was_read_in_part_are_called_a_lower_bound() -> None:
    library = opened(
        "demo.libs/libcudart-9335f6a2.so.12", elf(soname="libcudart.so.12"), "demo 1.0"
    )
    more = closed("demo/_C.so", "demo 1.0")
    alone = only(found(CPU, pin("demo 1.0"), files=[library]), "BM201")
    assert not alone.at_least
    assert "(1.0 MB)" in alone.message
    one = only(found(CPU, pin("demo 1.0"), files=[library, more]), "BM201")
    assert one.at_least
    assert "(at least 1.0 MB)" in one.message


def test_a_list_of_architectures_that_may_be_incomplete_says_so() -> None:
    content = replace(elf(device_code=sass("sm_75", size=9_000_000)), read=4_000_000)
    whole = elf(device_code=sass("sm_75", size=9_000_000))
    package = pin("xgboost 3.4.1", "base.in:1")
    path = "xgboost/lib/libxgboost.so"
    part = only(found(ROCM, package, files=[opened(path, content, "xgboost 3.4.1")]), "BM401")
    all_of_it = only(found(ROCM, package, files=[opened(path, whole, "xgboost 3.4.1")]), "BM401")
    assert "at least 9.0 MB" in part.message
    assert "--deep" in part.message
    assert "--deep" not in all_of_it.message


def test_architectures_are_not_missed_in_a_file_that_was_read_in_part() -> None:
    where = target("cuda", "12.8", archs=["sm_90"])
    content = elf(device_code=sass("sm_75"))
    for whole, expected in ((content, ["BM402 demo"]), (replace(content, read=9), [])):
        files = [opened("demo/_C.so", whole, "demo 1.0")]
        assert codes(found(where, pin("demo 1.0"), files=files)) == expected


def test_of_a_distribution_that_has_to_go_the_files_are_not_listed_too() -> None:
    findings = found(
        CPU,
        pin("nvidia-cublas-cu12 12.8.4.1", "base.in:1"),
        files=[closed("nvidia/cublas/lib/libcublas.so.12", "nvidia-cublas-cu12 12.8.4.1")],
    )
    assert codes(findings) == ["BM101 nvidia-cublas-cu12"]


def test_what_a_wheel_links_and_ships_is_said_once() -> None:
    library = closed("demo.libs/libcudart-9335f6a2.so.12", "demo 1.0")
    module = opened("demo/_C.so", elf(needed=["libcudart-9335f6a2.so.12"]), "demo 1.0")
    other = opened("demo/_D.so", elf(needed=["libcublas.so.12"]), "demo 1.0")
    package = pin("demo 1.0", "base.in:1")
    assert codes(found(CPU, package, files=[library, module])) == ["BM201 demo"]
    assert codes(found(CPU, package, files=[library, module, other])) == [
        "BM201 demo",
        "BM301 demo",
    ]


def test_a_library_of_a_wheel_that_was_not_opened_is_no_missing_one() -> None:
    files = [
        opened("torchaudio/_C.so", elf(needed=["libtorch_cuda.so"]), "torchaudio 2.11.0"),
        closed("torch/lib/libtorch_cuda.so", "torch 2.11.0"),
    ]
    where = subject(ROCM, pin("torch 2.11.0"), pin("torchaudio 2.11.0", "torch"), files=files)
    assert where.tree.missing == frozenset()
    assert judged(where)["torchaudio"].verdict != "broken"


def test_what_no_wheel_of_the_lock_has_is_said_of_the_lock_a6() -> None:
    package = pin("lmcache 0.5.6", "base.in:1")
    content = elf(needed=["libcudart.so.13", "libtorch_cuda.so"])
    findings = found(ROCM, package, files=[opened("lmcache/c_ops.so", content, "lmcache 0.5.6")])
    one = only(findings, "BM301")
    assert "this lock does not have libcudart.so.13" in one.message
    where = subject(ROCM, package, files=[opened("lmcache/c_ops.so", content, "lmcache 0.5.6")])
    assert judged(where)["lmcache"].verdict == "broken"


def test_two_wheels_that_write_one_path_are_found_before_they_do_a2_b11() -> None:
    path = "onnxruntime/capi/onnxruntime_pybind11_state.so"
    owners = ("onnxruntime-gpu==1.31.1", "onnxruntime==1.31.1")
    findings = found(
        CUDA,
        pin("onnxruntime 1.31.1", "base.in:1"),
        pin("onnxruntime-gpu 1.31.1", "base.in:2"),
        files=[closed(path, "onnxruntime 1.31.1")],
        shared=[SharedPath(path, owners, ())],
    )
    one = only(findings, "BM204")
    assert (one.severity, one.path) == ("error", path)


def test_of_two_wheels_with_one_path_the_one_of_another_backend_goes_b11() -> None:
    path = "onnxruntime/capi/onnxruntime_pybind11_state.so"
    owners = ("onnxruntime-gpu==1.31.1", "onnxruntime==1.31.1")
    pins = [pin("onnxruntime 1.31.1", "base.in:1"), pin("onnxruntime-gpu 1.31.1", "base.in:2")]
    for where, goes in [(CUDA, "onnxruntime"), (CPU, "onnxruntime-gpu"), (ROCM, "onnxruntime-gpu")]:
        one = only(found(where, *pins, shared=[SharedPath(path, owners, ())]), "BM204")
        assert one.fix is not None
        assert one.fix.patch == f'[backend.{where.backend}]\ndrop = ["{goes}"]\n'


def test_what_a_base_image_may_resolve_is_not_asked_of_wheels() -> None:
    content = elf(needed=["libGL.so.1", "libcuda.so.1"])
    findings = found(CUDA, pin("demo 1.0"), files=[opened("demo/_C.so", content, "demo 1.0")])
    assert findings == ()


def test_a_little_of_another_vendors_in_what_is_made_for_this_backend_is_a_note() -> None:
    package = pin("triton 3.9.0", "base.in:1")
    little = closed("triton/backends/amd/lib/ockl.bc", "triton 3.9.0", 400_000)
    much = closed("triton/backends/amd/lib/ockl.bc", "triton 3.9.0", 40_000_000)
    assert only(found(CUDA, package, files=[little]), "BM203").severity == "note"
    assert only(found(CUDA, package, files=[much]), "BM203").severity == "error"
    assert only(found(CPU, package, files=[little]), "BM203").severity == "warning"
    assert only(found(CPU, package, files=[much]), "BM203").severity == "error"


# The way out


def test_where_a_backend_has_no_build_the_one_for_the_cpu_is_the_way_out() -> None:
    findings = found(
        ROCM, pin("xgboost 3.4.1", "base.in:3"), pin("nvidia-nccl-cu13 2.28", "xgboost")
    )
    one = only(findings, "BM101")
    assert one.fix is not None
    assert 'replace = { xgboost = "xgboost-cpu" }' in one.fix.text
    assert "none is known for rocm" in one.fix.text


def test_cpu_torch_in_a_cuda_lock_is_found_before_it_is_downloaded_b1() -> None:
    assert codes(found(CUDA, pin("torch 2.9.0+cpu")), "error") == ["BM104 torch"]


def test_what_has_no_build_here_is_taken_out_where_it_was_asked_for_a6() -> None:
    findings = found(
        ROCM, pin("lmcache 0.5.6", "base.in:3"), pin("cuda-core 1.2", "lmcache"), pin("nvtx 1")
    )
    fixes = {one.distribution: one.fix.text for one in findings if one.fix is not None}
    assert "remove lmcache, which brings it, from the requirements" in fixes["cuda-core"]
    assert "remove it from the requirements" in fixes["nvtx"]
