"""BM204: what breaks decides how bad it is that two distributions own one path."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rulecases import SITE, elf, file, hip, image, of_image, only, sass, target

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Artefact, Inventory, PythonImport, SharedPath
from buildmatrix.judge.model import Severity

CUDA = target("cuda", "12.8")


def twice(owners: Sequence[str], *paths: str) -> Inventory:
    names = tuple(sorted(owner.replace(" ", "==") for owner in owners))
    return image(
        installed=owners,
        shared=[SharedPath(f"{SITE}/{path}", names, names[:1]) for path in paths],
    )


@pytest.mark.parametrize(
    ("owners", "paths", "severity"),
    [
        (("one 1", "two 2"), ("build_backend.py",), "note"),
        (("one 1", "nvidia-ml-py 13"), ("build_backend.py", "LICENSE"), "note"),
        (("one 1", "two 2"), ("build_backend.py", "shared/util.py"), "warning"),
        (("pynvml 12", "nvidia-ml-py 13"), ("pynvml.py",), "warning"),
        (("one 1", "two 2"), ("shared/_C.abi3.so", "shared/util.py"), "error"),
        (
            ("opencv-python 4.12.0", "opencv-python-headless 4.12.0"),
            ("cv2/cv2.abi3.so",),
            "warning",
        ),
        (("opencv-python 4.12.0", "opencv-python-headless 4.11.0"), ("cv2/cv2.abi3.so",), "error"),
        (("one 1", "two 1"), ("shared/_C.abi3.so",), "error"),
        (("onnxruntime 1.31.1", "onnxruntime-gpu 1.31.1"), ("onnxruntime/capi/_s.so",), "error"),
        (("triton 3.5.0", "triton-rocm 3.5.0"), ("triton/_C/libtriton.so",), "error"),
    ],
)
def test_what_breaks_decides_how_bad_it_is(
    owners: Sequence[str], paths: Sequence[str], severity: Severity
) -> None:
    assert only(of_image(CUDA, twice(owners, *paths)), "BM204").severity == severity


@pytest.mark.parametrize("matches", [None, ()])
def test_what_pip_compiles_is_judged_by_its_source(matches: tuple[str, ...] | None) -> None:
    names = ("nvidia-cublas-cu12==12.8", "nvidia-nccl-cu12==2.27")
    code = f"{SITE}/nvidia/__pycache__/__init__.cpython-311.pyc"
    tree = image(
        installed=[name.replace("==", " ") for name in names],
        shared=[
            SharedPath(code, names, matches),
            SharedPath(f"{SITE}/nvidia/__init__.py", names, names),
        ],
    )
    assert [one for one in of_image(CUDA, tree) if one.rule == "BM204"] == []
    mixed = replace(tree, shared_paths=(SharedPath(f"{SITE}/nvidia/__init__.py", names, ()),))
    assert only(of_image(CUDA, mixed), "BM204").severity == "warning"


def test_a_module_that_another_distribution_imports_is_no_stray_file() -> None:
    imports = PythonImport(f"{SITE}/app/__init__.py", 1, "shared", "imported", "app==1")
    tree = replace(twice(("one 1", "two 2"), "shared.py"), python_imports=(imports,))
    assert only(of_image(CUDA, tree), "BM204").severity == "warning"
    assert only(of_image(CUDA, twice(("one 1", "two 2"), "shared.py")), "BM204").severity == "note"


@pytest.mark.parametrize("owner", ["triton 3.9.0", "tokenspeed-triton 3.8.0"])
def test_bitcode_beside_more_of_this_backends_is_a_note_whatever_the_name(owner: str) -> None:
    def tree(own: int) -> Inventory:
        ptxas = file("t/backends/nvidia/bin/ptxas", elf(), owner, size=own)
        bitcode = Artefact(
            f"{SITE}/t/backends/amd/lib/ockl.bc", 500_000, "bc", owner.replace(" ", "==")
        )
        kernels = file("t/amd.so", elf(device_code=hip("gfx942", size=400_000)), owner)
        mine = file("t/nvidia.so", elf(device_code=sass("sm_90", size=own)), owner)
        return replace(image(ptxas, kernels, mine), artefacts=(bitcode,))

    for rule in ("BM203", "BM401"):
        assert only(of_image(CUDA, tree(90_000_000)), rule).severity == "note"
