"""BM402, BM403 and BM405: device code against the GPUs of a target and of its node classes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rulecases import SITE, codes, elf, file, hip, image, lock, of_image, only, pin, sass, target

from buildmatrix.base.data import replace
from buildmatrix.facts.elf.model import DeviceCode
from buildmatrix.facts.inventory.model import Artefact, Binary, ClosedFile, Inventory
from buildmatrix.matrix.model import NodeClass, Position, Target


def machines(backend: str, archs: Sequence[str], *names: str, products: str = "") -> Target:
    """A target that runs on node classes, each with these architectures."""
    position = Position("buildmatrix.toml", 1)
    return replace(
        target(backend),
        node_classes=tuple(
            NodeClass(
                name, backend, "", tuple(archs), {}, (), position, (products,) * bool(products)
            )
            for name in names
        ),
    )


def extension(line: str, content: Sequence[DeviceCode], *, reach: str = "import") -> Binary:
    name = line.split()[0].replace("-", "_")
    binary = file(f"{name}/_C.abi3.so", elf(device_code=content), line)
    return replace(binary, reach=reach)  # type: ignore[arg-type]  # one of the words of Reach


def flash(*archs: str) -> Inventory:
    """What is made for CUDA, asked for by name, and loaded by its import."""
    return image(extension("flash-attn 2.8.3", sass(*archs)))


REQUESTED = lock(pin("flash-attn 2.8.3", "base.in:3"))


# BM402


def test_a_gpu_of_a_node_class_that_is_newer_than_all_code_is_an_error_b8() -> None:
    where = machines("cuda", ["sm_120"], "workstations")
    one = only(of_image(where, flash("sm_80", "sm_90"), locked=REQUESTED), "BM402")
    assert one.severity == "error"
    assert "no device code for sm_120 (node class workstations)" in one.message
    assert "sm_80, sm_90" in one.message


def test_a_gpu_that_is_known_by_its_product_is_meant_all_the_same_b9() -> None:
    where = machines("rocm", [], "desks", products="Radeon RX 7600")
    tree = image(extension("demo 1", hip("gfx1100", "gfx942")))
    assert "gfx1102 (node class desks)" in only(of_image(where, tree), "BM402").message
    generic = image(extension("demo 1", hip("gfx11-generic", size=1_000)))
    assert of_image(where, generic) == ()


@pytest.mark.parametrize("served", ["sm_120", "sm_120f", "sm_120a"])
def test_code_for_the_gpu_of_the_class_is_enough(served: str) -> None:
    where = machines("cuda", ["sm_120"], "workstations")
    assert of_image(where, flash(served), locked=REQUESTED) == ()


def test_all_classes_and_gpus_stand_in_one_finding() -> None:
    where = replace(machines("cuda", ["sm_75", "sm_120"], "a", "b"), archs=("sm_70", "sm_75"))
    one = only(of_image(where, flash("sm_90"), locked=REQUESTED), "BM402")
    assert "for sm_70, sm_75 (node classes a, b), sm_120 (node classes a, b): " in one.message


@pytest.mark.parametrize("case", ["archs alone", "by another", "no lock", "optional", "of no one"])
def test_what_may_not_be_in_use_there_is_a_warning(case: str) -> None:
    where = machines("cuda", ["sm_120"], "workstations")
    tree, locked = flash("sm_90"), REQUESTED
    if case == "archs alone":
        where = target("cuda", archs=["sm_120"])
    elif case == "by another":
        locked = lock(pin("flash-attn 2.8.3", "demo"), pin("demo 1", "base.in:1"))
    elif case == "no lock":
        locked = lock()
    elif case == "optional":
        tree = image(extension("flash-attn 2.8.3", sass("sm_90"), reach="guarded"))
    else:
        tree = image(file("app/kernels.so", elf(device_code=sass("sm_90"))))
    assert only(of_image(where, tree, locked=locked), "BM402").severity == "warning"


def test_each_file_of_nobody_is_a_finding_and_packages_count_as_a_whole() -> None:
    where = machines("cuda", ["sm_90"], "h100")
    files = [
        file(f"usr/lib/{name}", elf(name, device_code=sass(arch)))
        for name, arch in [("libcublas.so.12", "sm_80"), ("libcublasLt.so.12", "sm_90")]
    ]
    own = file("app/kernels.so", elf(device_code=sass("sm_80")))
    other = file("app/more.so", elf(device_code=sass("sm_75")))
    tree = replace(
        image(*files, own, other),
        packaged=dict.fromkeys((binary.path for binary in files), "libcublas-12-4 12.4.5.8"),
    )
    findings = [one for one in of_image(where, tree) if one.rule == "BM402"]
    assert [one.path for one in findings] == ["app/kernels.so", "app/more.so"]
    assert len({one.fingerprint for one in findings}) == 2
    assert findings[0].message.startswith("app/kernels.so has no device code for sm_90")
    assert findings[0].fix is not None and findings[0].fix.kind == "base"


def test_code_whose_gpu_its_bytes_do_not_name_is_a_note_and_no_miss() -> None:
    where = machines("npu", ["ascend910b"], "npus")
    kernel = Artefact(
        f"{SITE}/demo/kernel.o",
        9000,
        "aicore",
        "demo==1",
        (DeviceCode("elf", "aicore", None, 1, 9000, 0),),
    )
    tree = replace(image(installed=["demo 1"]), artefacts=(kernel,))
    one = only(of_image(where, tree), "BM402")
    assert (one.severity, "is not known" in one.message) == ("note", True)
    assert of_image(target("npu"), tree) == ()


def test_nothing_is_missing_while_files_of_the_distribution_are_closed() -> None:
    where = machines("cuda", ["sm_120"], "workstations")
    tree = replace(
        flash("sm_90"),
        closed=(ClosedFile(f"{SITE}/flash_attn/_D.so", 9_000_000, "flash-attn==2.8.3"),),
    )
    assert of_image(where, tree, locked=REQUESTED) == ()


# BM403


def test_code_that_is_still_to_compile_on_a_node_class_is_a_warning() -> None:
    where = machines("cuda", ["sm_120"], "workstations")
    one = only(of_image(where, flash("sm_90", "compute_90"), locked=REQUESTED), "BM403")
    assert one.severity == "warning"
    assert "no binary code for sm_120 (node class workstations)" in one.message


@pytest.mark.parametrize(
    "archs", [("sm_120", "compute_90"), ("sm_90", "compute_90", "sm_120f"), ("sm_90",)]
)
def test_portable_code_beside_binaries_stays_quiet_and_so_does_none(archs: Sequence[str]) -> None:
    where = machines("cuda", ["sm_120"], "workstations")
    assert "BM403" not in codes(of_image(where, flash(*archs), locked=REQUESTED))


@pytest.mark.parametrize(("archs", "notes"), [(["spir64"], 1), (["spir64", "spir64_gen"], 0)])
def test_spirv_is_the_usual_form_of_programs_for_intel(archs: list[str], notes: int) -> None:
    where = machines("oneapi", ["bmg-g21"], "arc")
    content = [DeviceCode("offload-bundle", "spirv", arch, 1, 9000, 4096) for arch in archs]
    findings = of_image(where, image(extension("demo 1", content)))
    assert [(one.rule, one.severity) for one in findings] == [("BM403", "note")] * notes


# BM405


def test_the_bytes_of_unused_architectures_are_a_note_with_what_would_be_left() -> None:
    where = machines("cuda", ["sm_90"], "h100")
    archs = ("sm_60", "sm_70", "sm_80", "sm_90", "compute_90")
    one = only(of_image(where, image(extension("demo 1", sass(*archs, size=50_000_000)))), "BM405")
    assert one.severity == "note"
    assert "30.0 MB of the device code" in one.message
    assert "for sm_60, sm_70, sm_80, which" in one.message
    assert "20.0 MB would be left" in one.message


@pytest.mark.parametrize(
    ("archs", "bytes_of_code", "where"),
    [
        (("sm_80", "sm_90"), 50_000_000, target("cuda")),
        (("sm_80", "sm_90"), 50_000_000, machines("cuda", ["sm_86", "sm_90"], "both")),
        (("sm_80", "sm_90"), 15_000_000, machines("cuda", ["sm_90"], "h100")),
        (("compute_80", "sm_90"), 50_000_000, machines("cuda", ["sm_90"], "h100")),
        (("sm_75", "sm_80"), 50_000_000, machines("cuda", ["sm_90"], "h100")),
    ],
    ids=["no class", "all used", "little", "portable", "nothing left"],
)
def test_no_saving_is_claimed(archs: Sequence[str], bytes_of_code: int, where: Target) -> None:
    tree = image(extension("demo 1", sass(*archs, size=bytes_of_code)))
    assert "BM405" not in [one.rule for one in of_image(where, tree)]
