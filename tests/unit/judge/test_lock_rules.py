"""BM101 to BM104: what is said before a download. Letters are rows of docs/incidents.md."""

from __future__ import annotations

from rulecases import codes, of_lock, only, pin, target

CPU = target("cpu")
ROCM = target("rocm", "6.4")
CUDA = target("cuda", "12.8")
ONEAPI = target("oneapi", "2025.0")


# BM101


def test_xgboost_on_cpu_is_blamed_for_nccl_and_the_fix_swaps_xgboost_a9() -> None:
    findings = of_lock(
        CPU, pin("xgboost 3.4.1", "base.in:3"), pin("nvidia-nccl-cu13 2.28", "xgboost", size=289)
    )
    one = only(findings, "BM101")
    assert (one.severity, one.distribution, one.vendor) == ("error", "nvidia-nccl-cu13", "nvidia")
    assert one.chain == ("base.in:3", "xgboost 3.4.1", "nvidia-nccl-cu13 2.28")
    assert one.fix is not None
    assert 'replace = { xgboost = "xgboost-cpu" }' in one.fix.text
    assert "289 B" in one.message


def test_default_torch_pulled_in_by_another_package_is_found_with_the_whole_chain_a5_a10() -> None:
    findings = of_lock(
        CPU,
        pin("sentence-transformers 6.2.0", "base.in:1"),
        pin("torch 2.15.0", "sentence-transformers"),
        pin("cuda-toolkit 13.2.2", "torch"),
        pin("nvidia-cublas 13.4", "cuda-toolkit,nvidia-cudnn-cu13"),
        pin("nvidia-cudnn-cu13 9.26", "torch"),
    )
    assert codes(findings, "error") == [
        "BM101 cuda-toolkit",
        "BM101 nvidia-cublas",
        "BM101 nvidia-cudnn-cu13",
        "BM104 torch",
    ]
    cublas = findings[1]
    assert cublas.chain[:3] == ("base.in:1", "sentence-transformers 6.2.0", "torch 2.15.0")
    assert cublas.chain[-1] == "nvidia-cublas 13.4"
    assert all(one.fix is not None and 'torch = "cpu"' in one.fix.text for one in findings)


def test_nvidia_pins_in_a_committed_rocm_lock_are_found_a7() -> None:
    names = ["nvidia-cublas-cu12 12.8", "nvidia-cudnn-cu12 9.1", "nvidia-nccl-cu12 2.2"]
    assert len(codes(of_lock(ROCM, *map(pin, names)), "error")) == 3


def test_triton_in_a_cpu_lock_is_a_warning_a8() -> None:
    one = only(of_lock(CPU, pin("triton 3.9.0")), "BM101")
    assert one.severity == "warning"
    assert one.fix is not None and 'drop = ["triton"]' in one.fix.text


def test_cpu_parts_of_intels_stack_and_plain_packages_stay_quiet() -> None:
    names = ["numpy 2.2.0", "mkl 2026.2.0", "intel-openmp 2026.2", "tbb 2022.0", "umf 1.0"]
    for where in (CPU, CUDA, ROCM, ONEAPI):
        assert of_lock(where, *map(pin, names[:4])) == ()
    assert of_lock(CPU, pin(names[4])) == ()


def test_a_wheel_for_many_backends_is_not_condemned_by_its_name() -> None:
    for where in (CPU, CUDA, ROCM):
        assert of_lock(where, pin("bitsandbytes 0.50.2")) == ()


def test_the_backends_own_distributions_stay_quiet() -> None:
    assert of_lock(CUDA, pin("nvidia-nccl-cu12 2.28"), pin("cuda-bindings 12.8.0")) == ()
    assert of_lock(ROCM, pin("amdsmi 6.4.1"), pin("hip-python 6.4.0")) == ()
    assert of_lock(ONEAPI, pin("dpctl 0.18.0"), pin("intel-sycl-rt 2025.0.1")) == ()


def test_another_backend_of_the_same_vendor_is_not_foreign() -> None:
    assert of_lock(ONEAPI, pin("onnxruntime-openvino 1.22")) == ()
    assert codes(of_lock(CUDA, pin("onnxruntime-openvino 1.22"))) == ["BM101 onnxruntime-openvino"]
    # It runs on any CPU. Gaudi is Intel's by purchase only: it shares nothing with oneAPI.
    assert of_lock(CPU, pin("onnxruntime-openvino 1.22")) == ()
    assert codes(of_lock(ONEAPI, pin("habana-pyhlml 1.22"))) == ["BM101 habana-pyhlml"]


def test_packages_that_ask_for_each_other_do_not_hang_the_search_for_the_requirement_line() -> None:
    findings = of_lock(
        CPU,
        pin("a 1", "nvidia-nccl-cu12"),
        pin("nvidia-nccl-cu12 2", "a"),
    )
    assert only(findings, "BM101").chain == ("nvidia-nccl-cu12 2",)


def test_the_fingerprint_survives_an_upgrade_and_tells_backends_apart() -> None:
    old = only(of_lock(CPU, pin("nvidia-nccl-cu12 2.27")), "BM101")
    new = only(of_lock(CPU, pin("nvidia-nccl-cu12 2.28")), "BM101")
    rocm = only(of_lock(ROCM, pin("nvidia-nccl-cu12 2.28")), "BM101")
    assert old.fingerprint == new.fingerprint != rocm.fingerprint


# BM102


def test_cuda_torch_in_a_rocm_lock_is_found_by_its_local_version_a1_a3_a4() -> None:
    one = only(of_lock(ROCM, pin("torch 2.6.0+cu124")), "BM102")
    assert one.severity == "error"
    assert one.fix is not None and 'torch = "rocm6.4"' in one.fix.text


def test_cuda_torch_in_a_cpu_and_in_an_xpu_lock_is_found_a12_a18() -> None:
    assert codes(of_lock(CPU, pin("torch 2.6.0+cu126"))) == ["BM102 torch"]
    assert codes(of_lock(ONEAPI, pin("torch 2.9.0+cu130"))) == ["BM102 torch"]


def test_the_right_local_version_stays_quiet() -> None:
    assert of_lock(ROCM, pin("torch 2.9.0+rocm6.4")) == ()
    assert of_lock(CPU, pin("torch 2.9.0+cpu")) == ()
    assert of_lock(ONEAPI, pin("torch 2.9.0+xpu")) == ()
    assert of_lock(CUDA, pin("torch 2.9.0+cu128")) == ()


def test_a_local_version_that_names_no_backend_stays_quiet() -> None:
    assert of_lock(CPU, pin("demo 1.0+local.2")) == ()


# BM103


def test_wheels_of_the_cuda_13_line_in_a_cuda_12_target_are_found_b3() -> None:
    findings = of_lock(CUDA, pin("cupy-cuda13x 14.0"), pin("nixl-cu12 1.0"), pin("nixl-cu13 1.0"))
    assert codes(findings, "error") == ["BM103 cupy-cuda13x", "BM103 nixl-cu13"]
    assert findings[0].fix is not None
    assert 'replace = { cupy-cuda13x = "cupy-cuda12x" }' in findings[0].fix.text


def test_a_suffixless_cuda_13_wheel_is_known_by_its_version() -> None:
    assert codes(of_lock(CUDA, pin("nvidia-cuda-nvrtc 13.0.88"))) == ["BM103 nvidia-cuda-nvrtc"]
    assert of_lock(target("cuda", "13.0"), pin("nvidia-cuda-nvrtc 13.0.88")) == ()


def test_cu128_torch_in_a_cuda_13_target_is_found_b4() -> None:
    one = only(of_lock(target("cuda", "13.0"), pin("torch 2.9.0+cu128")), "BM103")
    assert one.fix is not None and 'torch = "cu130"' in one.fix.text


def test_the_default_torch_is_routed_when_it_brought_the_other_line_b12() -> None:
    findings = of_lock(CUDA, pin("torch 2.15.0"), pin("nvidia-cudnn-cu13 9.26", "torch"))
    one = only(findings, "BM103")
    assert one.fix is not None and 'torch = "cu128"' in one.fix.text


def test_an_older_minor_of_the_same_line_stays_quiet() -> None:
    assert of_lock(CUDA, pin("torch 2.6.0+cu124"), pin("cuda-bindings 12.6.0")) == ()


def test_two_lines_in_a_target_without_a_runtime_are_found_by_majority() -> None:
    findings = of_lock(
        target("cuda"), pin("nixl-cu12 1"), pin("nvidia-nccl-cu12 2"), pin("nixl-cu13 1")
    )
    assert codes(findings) == ["BM103 nixl-cu13"]


def test_one_line_in_a_target_without_a_runtime_stays_quiet() -> None:
    assert of_lock(target("cuda"), pin("nixl-cu13 1"), pin("nvidia-nccl-cu13 2")) == ()


# BM104


def test_plain_torch_in_a_rocm_lock_is_the_default_build_a1() -> None:
    one = only(of_lock(ROCM, pin("torch 2.9.0")), "BM104")
    assert one.severity == "error"
    assert one.fix is not None and 'torch = "rocm6.4"' in one.fix.text


def test_when_the_route_exists_and_missed_torch_the_fix_is_to_name_it() -> None:
    where = target("rocm", "6.4", torch="rocm6.4")
    one = only(of_lock(where, pin("torch 2.9.0", "sentence-transformers")), "BM104")
    assert one.fix is not None and "name torch in a requirement file" in one.fix.text


def test_cpu_torch_in_a_cuda_lock_is_found_b1() -> None:
    one = only(of_lock(CUDA, pin("torch 2.5.1+cpu")), "BM104")
    assert one.severity == "error"
    assert one.fix is not None and 'torch = "cu128"' in one.fix.text


def test_xgboost_alone_is_a_warning_because_its_file_is_judged_in_the_image() -> None:
    one = only(of_lock(CPU, pin("xgboost 3.4.1")), "BM104")
    assert one.severity == "warning"
    assert one.fix is not None and "xgboost-cpu" in one.fix.text


def test_a_default_build_that_its_name_proves_is_an_error_on_every_other_backend() -> None:
    for where, reason in ((CPU, "there is a build for cpu"), (ONEAPI, "which is for NVIDIA")):
        one = only(of_lock(where, pin("vllm 0.33.0")), "BM104")
        assert one.severity == "error"
        assert reason in one.message
    assert of_lock(CUDA, pin("vllm 0.33.0")) == ()


def test_what_is_built_for_the_torch_at_hand_is_not_condemned_by_its_name() -> None:
    assert of_lock(ROCM, pin("flash-attn 2.8.3"), pin("deepspeed 0.18.0")) == ()
    assert only(of_lock(CPU, pin("flash-attn 2.8.3")), "BM101").severity == "error"
    assert of_lock(CPU, pin("deepspeed 0.18.0")) == ()


def test_plain_torch_in_a_cuda_lock_stays_quiet() -> None:
    assert of_lock(CUDA, pin("torch 2.9.0")) == ()


def test_plain_torch_from_an_index_that_the_user_named_stays_quiet() -> None:
    url = "https://wheels.example.com/rocm/"
    where = target("rocm", "6.4", index={"torch": url})
    assert of_lock(where, pin("torch 2.9.0", index=url.rstrip("/"))) == ()


def test_plain_torch_on_arm_counts_only_when_cuda_came_with_it() -> None:
    where = target("cpu", platform="linux/arm64")
    assert of_lock(where, pin("torch 2.9.0")) == ()
    findings = of_lock(where, pin("torch 2.15.0"), pin("nvidia-nccl-cu13 2", "torch"))
    assert codes(findings, "error") == ["BM101 nvidia-nccl-cu13", "BM104 torch"]


def test_cpu_packages_under_other_names_may_be_meant_in_an_accelerators_lock() -> None:
    assert of_lock(CUDA, pin("onnxruntime 1.31.1"), pin("xgboost-cpu 3.2.0")) == ()
