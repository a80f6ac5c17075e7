"""Verdicts over a whole resolved set, and what a deeper look could change about them."""

from __future__ import annotations

import pytest
from auditcases import closed, gained, judged, opened, subject
from rulecases import elf, pin, sass, target

from buildmatrix.base.data import replace
from buildmatrix.judge.certainty import Unopened, describe_open_rest, hidden_bytes, unopened
from buildmatrix.judge.locks import Wheels
from buildmatrix.judge.model import Verdict

CPU = target("cpu")
CUDA = target("cuda", "12.8")

EMBEDDINGS = (
    pin("sentence-transformers 5.1.0", "base.in:3"),
    pin("transformers 5.0.0", "sentence-transformers"),
    pin("torch 2.9.0", "sentence-transformers"),
    pin("nvidia-cublas-cu12 12.8.4.1", "torch"),
    pin("numpy 2.4.6", "transformers"),
)


def test_a_clean_package_that_requires_a_foreign_one_is_bloat_through_it_a10() -> None:
    found = judged(
        subject(
            CPU,
            *EMBEDDINGS,
            requires={"torch": ["nvidia-cublas-cu12==12.8.4.1; platform_system == 'Linux'"]},
        )
    )
    assert found["sentence-transformers"].verdict == "bloat"
    assert "it requires torch 2.9.0" in found["sentence-transformers"].reason
    assert found["sentence-transformers"].vendors == ("nvidia",)
    assert found["transformers"].verdict == "ok"
    assert found["numpy"].verdict == "ok"


def test_the_own_bytes_of_a_clean_package_stay_its_own() -> None:
    found = judged(subject(CPU, *EMBEDDINGS, sizes={"nvidia-cublas-cu12": 600_000_000}))
    assert found["nvidia-cublas-cu12"].foreign_bytes == 600_000_000
    assert found["sentence-transformers"].foreign_bytes == 0


def test_the_same_set_is_fine_where_it_belongs() -> None:
    found = judged(subject(CUDA, *EMBEDDINGS))
    assert {one.verdict for one in found.values()} == {"ok"}


def test_broken_counts_more_than_bloat_and_the_way_to_it_is_named() -> None:
    found = judged(
        subject(
            CPU,
            pin("serving 1.0", "base.in:1"),
            pin("nvidia-nccl-cu12 2", "serving"),
            pin("cache 1.0", "serving"),
            pin("lmcache 0.5.6", "cache"),
            files=[opened("lmcache/_C.so", elf(needed=["libcudart.so.13"]), "lmcache 0.5.6")],
        )
    )
    assert found["serving"].verdict == "broken"
    assert "lmcache 0.5.6 (via cache)" in found["serving"].reason


def test_packages_that_require_each_other_end() -> None:
    found = judged(subject(CPU, pin("a 1", "b"), pin("b 1", "a"), pin("c 1", "a,b")))
    assert {one.verdict for one in found.values()} == {"ok"}


# What a deeper look could change


def test_a_name_that_belongs_to_one_vendor_needs_no_look() -> None:
    where = subject(
        CPU,
        pin("nvidia-cublas-cu12 12.8.4.1"),
        files=[closed("nvidia/cublas/lib/libcublas.so.12", "nvidia-cublas-cu12 12.8.4.1")],
    )
    assert gained(where) == {}


def test_pure_python_needs_no_look() -> None:
    assert gained(subject(CPU, pin("click 8.3.0"))) == {}


def test_an_unknown_package_with_binaries_is_open_until_they_were_opened() -> None:
    shut = subject(CPU, pin("demo 1.0"), files=[closed("demo/_C.so", "demo 1.0")])
    assert gained(shut) == {"demo==1.0": "verdict"}
    read = subject(CPU, pin("demo 1.0"), files=[opened("demo/_C.so", elf(), "demo 1.0")])
    assert gained(read) == {}


@pytest.mark.parametrize("asker", ["xgboost 3.4.1", "xgrammar 0.2.8"])
def test_that_what_it_requires_is_bloat_spares_no_look_at_what_it_holds(asker: str) -> None:
    name = asker.partition(" ")[0]
    where = subject(
        CPU,
        pin(asker, "base.in:1"),
        pin("torch 2.9.0", name),
        pin("nvidia-nccl-cu12 2.28", f"torch,{name}"),
        requires={name: ["torch>=2"], "xgboost": ["nvidia-nccl-cu12"]},
        files=[
            closed(f"{name}/lib/lib{name}.so", asker, 230_000_000),
            closed("torch/lib/libtorch_cuda.so", "torch 2.9.0", 900_000_000),
        ],
    )
    assert judged(where)[name].verdict == "bloat"
    assert judged(where)[name].reason.startswith("it requires ")
    gain = gained(where)[asker.replace(" ", "==")]
    assert gain == "verdict"
    left = unopened(where)[asker.replace(" ", "==")]
    assert "1 of 1 binary file not opened" in (describe_open_rest(left, gain, 230_000_000) or "")


def test_bytes_count_before_what_is_required_in_the_reason() -> None:
    content = elf(device_code=sass("sm_80", size=40_000_000))
    one = judged(
        subject(
            CPU,
            pin("xgboost 3.4.1", "base.in:1"),
            pin("nvidia-nccl-cu13 2.28", "xgboost"),
            requires={"xgboost": ["nvidia-nccl-cu13"]},
            files=[opened("xgboost/lib/libxgboost.so", content, "xgboost 3.4.1")],
        )
    )["xgboost"]
    assert one.reason == "40.0 MB of it are for NVIDIA CUDA"


def test_what_the_names_of_its_files_already_say_is_only_read_for_the_last_detail() -> None:
    where = subject(
        CPU,
        pin("triton 3.9.0"),
        files=[closed("triton/backends/nvidia/bin/ptxas", "triton 3.9.0", 30_000_000)],
    )
    assert gained(where) == {"triton==3.9.0": "detail"}


def test_what_is_made_for_this_backend_is_only_read_for_the_last_detail() -> None:
    files = [closed("torch/lib/libtorch_cuda.so", "torch 2.9.0", 900_000_000)]
    where = target("cuda")
    assert gained(subject(where, pin("torch 2.9.0"), files=files)) == {"torch==2.9.0": "detail"}


def test_a_build_that_the_version_already_condemns_is_not_read_for_more() -> None:
    files = [closed("torch/lib/libtorch_cuda.so", "torch 2.9.0+cu128", 900_000_000)]
    assert gained(subject(CPU, pin("torch 2.9.0+cu128"), files=files)) == {}


def test_what_was_read_in_part_stays_open() -> None:
    content = elf(device_code=sass("sm_75", size=9_000_000))
    content = replace(content, read=4_000_000, unread_data=500_000)
    where = subject(
        target("rocm", "7.0"),
        pin("ctranslate2 4.8.5"),
        files=[
            opened("ctranslate2.libs/libctranslate2.so", content, "ctranslate2 4.8.5"),
            closed("ctranslate2/_ext.so", "ctranslate2 4.8.5"),
        ],
    )
    left = unopened(where)["ctranslate2==4.8.5"]
    assert left == Unopened(
        closed=1,
        coded=1,
        binaries=2,
        size=2_000_000,
        hidden=1_000_000,
        largest=1_000_000,
        behind=500_000,
    )
    text = describe_open_rest(left, "detail", 42_000_000)
    assert text == (
        "1 of 2 binary files not opened and 1 read in part, so architectures may be incomplete: "
        "`audit --deep` reads the rest (42.0 MB)"
    )


def test_device_code_of_which_only_the_beginning_was_read_is_no_little_device_code() -> None:
    code = elf(device_code=sass("sm_75", size=200_000))
    begun = replace(code, read=30_000_000, unread_data=207_000_000)
    demo = opened("demo/lib/libdemo.so", begun, "demo 1.0", size=237_000_000)
    where = subject(CPU, pin("demo 1.0"), files=[demo])
    verdict = judged(where)["demo"]
    assert (verdict.verdict, verdict.may_be) == ("optional", "bloat")
    assert verdict.reason == "at least 200.0 kB of it are foreign"
    assert gained(where) == {"demo==1.0": "amount"}
    # As good as all of it was read, or the file takes little of its wheel: little is little.
    for nearly in (
        replace(demo, elf=replace(begun, unread_data=500_000)),
        replace(demo, packed=3_000_000),
    ):
        little = judged(subject(CPU, pin("demo 1.0"), files=[nearly]))["demo"]
        assert (little.verdict, little.may_be) == ("optional", None)
        assert little.reason == "at least 200.0 kB of it are foreign"


def test_as_much_data_as_was_not_reached_may_be_foreign_and_no_more() -> None:
    def left_in(data: int) -> Wheels:
        content = replace(elf(), read=65_536, unread_data=data)
        file = opened("demo/_C.so", content, "demo 1.0", size=60_000_000)
        return subject(CPU, pin("demo 1.0"), files=[file])

    assert gained(left_in(4_000_000)) == {"demo==1.0": "trace"}
    assert describe_open_rest(unopened(left_in(4_000_000))["demo==1.0"], "trace", 9_000_000) == (
        "1 read in part, so names of libraries that it loads on demand may be missing: "
        "`audit --deep` reads the rest (9.0 MB)"
    )
    assert gained(left_in(15_000_000)) == {"demo==1.0": "verdict"}
    # Code of the host's processor is no device code, however much of it was not read.
    assert gained(left_in(0)) == {"demo==1.0": "trace"}


def test_binaries_that_nobody_opened_may_link_what_is_nowhere() -> None:
    small = [closed(f"demo/_{n}.so", "demo 1.0", 200_000) for n in range(3)]
    large = opened("demo/_C.so", elf(), "demo 1.0", size=900_000)
    assert gained(subject(CPU, pin("demo 1.0"), files=[large, *small])) == {"demo==1.0": "trace"}
    assert gained(subject(CPU, pin("demo 1.0"), files=small)) == {"demo==1.0": "verdict"}


def test_an_import_that_nobody_looked_at_may_survive_a_library_that_is_missing() -> None:
    files = [
        opened("demo/_C.so", elf(needed=["libcudart.so.13"]), "demo 1.0"),
        closed("demo/__init__.py", "demo 1.0", 2_000),
    ]
    assert gained(subject(CPU, pin("demo 1.0"), files=files)) == {"demo==1.0": "verdict"}
    assert gained(subject(CPU, pin("demo 1.0"), files=files[:1])) == {}


def test_files_without_a_telling_name_decide_nothing_when_they_are_small() -> None:
    zones = [
        closed(f"tzdata/zoneinfo/Europe/{name}", "tzdata 1", 2_000) for name in ("Rome", "Oslo")
    ]
    assert gained(subject(CPU, pin("tzdata 1"), files=zones)) == {}
    tool = closed("demo/bin/helper", "demo 1.0", 30_000_000)
    assert gained(subject(CPU, pin("demo 1.0"), files=[tool])) == {"demo==1.0": "verdict"}


def test_what_an_audit_did_not_read_and_could_turn_a_verdict_is_counted() -> None:
    left = Unopened(closed=1, binaries=2, size=90, hidden=60, heavy=40, largest=450, behind=30)
    verdict = Verdict("demo", "1", "cpu", "ok", "", certain=False, may_be="broken")
    assert hidden_bytes(verdict, left) == 40
    # It names a library that it may open: torch of arm64, all of which is for the CPU.
    assert hidden_bytes(replace(verdict, verdict="optional"), left) == 40
    assert hidden_bytes(replace(verdict, verdict="optional", foreign_bytes=1), left) == 490
    assert hidden_bytes(replace(verdict, certain=True, may_be=None), left) == 0
    assert hidden_bytes(verdict, None) == 0
    # Of many small tables (babel, botocore) none can hide much.
    tables = [closed(f"demo/{name}.dat", "demo 1.0", 400_000) for name in range(500)]
    large = closed("demo/data.bin", "demo 1.0", 9_000_000)
    for files, heavy in ((tables, 0), ([*tables, large], 9_000_000)):
        read = unopened(subject(CPU, pin("demo 1.0"), files=files))["demo==1.0"]
        assert (read.hidden >= 200_000_000, read.heavy) == (True, heavy)
