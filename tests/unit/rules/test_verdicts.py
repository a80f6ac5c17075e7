"""Verdicts per distribution and backend; shapes of real wheels are from INCIDENTS.md, part C."""

from __future__ import annotations

from rulecases import elf, file, image, sass, verdict


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


def test_an_import_that_finds_its_foreign_library_is_not_broken() -> None:
    tree = image(
        file("demo/_C.abi3.so", elf(needed=["libcudart.so.13"]), "demo 1"),
        file("usr/lib/libcudart.so.13", elf("libcudart.so.13")),
    )
    assert verdict("rocm", tree, "demo").verdict == "optional"


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
                "this is no requirement !!",
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
