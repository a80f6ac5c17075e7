"""What a package manager keeps, and what was copied and never installed, is no installed thing."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from elf_images import Image, Part, fat_binary, fat_entry
from rulecases import codes, target
from test_nested import deb, tarred, zipped

from buildmatrix.base.data import replace
from buildmatrix.catalogue.leftovers import split_leftovers
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory, Layer
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.judge.judging import Judgement, judge_image
from buildmatrix.matrix.model import Policy

SITE = "usr/lib/python3.12/site-packages"
CACHE = "root/.cache/uv/archive-v0/x7"
RUNTIME = Image(strings={14: "libcudart.so.12"}, parts=[Part(".rodata", bytes(9000))]).build()
KERNELS = Image(
    parts=[Part(".nv_fatbin", fat_binary(fat_entry(2, 90, bytes(4000))))],
).build()
DISTRIBUTION = {
    "nvidia/cuda_runtime/lib/libcudart.so.12": RUNTIME,
    "nvidia_cuda_runtime_cu12-12.8.90.dist-info/METADATA": (
        b"Name: nvidia-cuda-runtime-cu12\nVersion: 12.8.90\n"
    ),
    "nvidia_cuda_runtime_cu12-12.8.90.dist-info/RECORD": (
        b"nvidia/cuda_runtime/lib/libcudart.so.12,,\n"
    ),
}
WHEEL = zipped({**DISTRIBUTION, "nvidia_cuda_runtime_cu12-12.8.90.dist-info/WHEEL": b"x"})


def written(root: Path, folder: str, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        place = root / folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def read(root: Path) -> Inventory:
    with DirectoryTree(root) as tree:
        return collect(tree)


def judged(tree: Inventory, backend: str = "cpu", threshold: int = 5_000_000) -> Judgement:
    policy = Policy(bloat_threshold=threshold)
    seen = evidence(tree, load())
    return judge_image(target(backend), tree, seen, None, load(), policy)


def test_a_cache_is_one_finding_and_nothing_in_it_is_installed(tmp_path: Path) -> None:
    written(tmp_path, CACHE, DISTRIBUTION)
    tree = read(tmp_path)
    assert [one.name for one in tree.distributions] == ["nvidia-cuda-runtime-cu12"]
    said = judged(tree)
    assert said.verdicts == ()
    (one,) = said.findings
    assert (one.rule, one.severity, one.path, one.vendor) == (
        "BM605", "error", "root/.cache/uv", "nvidia",
    )  # fmt: skip
    assert "uv's cache" in one.message
    # On its own backend few bytes are not worth a word, and many are.
    assert judged(tree, "cuda").findings == ()
    assert [one.severity for one in judged(tree, "cuda", 1000).findings] == ["warning"]


def test_the_layer_that_left_it_is_named(tmp_path: Path) -> None:
    written(tmp_path, CACHE, DISTRIBUTION)
    tree = read(tmp_path)
    (path,) = (one.path for one in tree.binaries)
    layers = (Layer("sha256:1", "COPY . /", 1), Layer("sha256:2", "RUN uv pip install x", 9))
    (one,) = judged(replace(tree, layers=layers, origins={path: 1})).findings
    assert "layer 2 (RUN uv pip install x) left it" in one.message


def test_all_names_of_a_file_are_one_file_and_the_installed_one_is_told(tmp_path: Path) -> None:
    """As `uv pip install` leaves an image: the cache and site-packages share their files."""
    written(tmp_path, CACHE, DISTRIBUTION)
    written(tmp_path, "usr/bin", {"python3.12": b"\x7fELF" + bytes(60)})
    for name in DISTRIBUTION:
        place = tmp_path / SITE / name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(tmp_path / CACHE / name, place)
    tree = read(tmp_path)
    library = f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"
    assert library in [one.path for one in tree.binaries]
    assert f"{CACHE}/nvidia/cuda_runtime/lib/libcudart.so.12" in [one.path for one in tree.links]
    said = judged(tree)
    assert codes(said.findings).count("BM605") == 0
    assert "root/.cache" not in " ".join(one.message for one in said.findings)
    assert [one.name for one in said.verdicts] == ["nvidia-cuda-runtime-cu12"]


@pytest.mark.parametrize("how", ["path", "symlink", "ld.so.conf"])
def test_what_is_used_from_outside_is_installed(how: str, tmp_path: Path) -> None:
    """Else a green image could be planted by the name of a folder."""
    written(tmp_path, CACHE, DISTRIBUTION)
    library = f"{CACHE}/nvidia/cuda_runtime/lib"
    environment: dict[str, str] = {}
    if how == "path":
        environment = {"LD_LIBRARY_PATH": f"/{library}"}
    elif how == "symlink":
        (tmp_path / "usr/lib").mkdir(parents=True)
        (tmp_path / "usr/lib/libcudart.so.12").symlink_to(f"/{library}/libcudart.so.12")
    else:
        written(tmp_path, "etc", {"ld.so.conf": f"/{library}\n".encode()})
    tree = replace(read(tmp_path), environment=environment)
    parted = split_leftovers(tree, load())
    assert [one.path for one in parted.installed.binaries] == [f"{library}/libcudart.so.12"]
    assert [one.rule for one in judged(tree).findings] == ["BM201"]


def test_a_variable_names_a_cache_and_hides_nothing(tmp_path: Path) -> None:
    written(tmp_path, "opt/kept", DISTRIBUTION)
    tree = replace(read(tmp_path), environment={"UV_CACHE_DIR": "/opt/kept"})
    assert codes(judged(tree).findings) == ["BM605"]
    # All of the image, called a cache: its bytes are told all the same.
    hidden = replace(tree, environment={"UV_CACHE_DIR": "/opt"})
    assert [one.severity for one in judged(hidden).findings] == ["error"]


@pytest.mark.parametrize(
    ("place", "environment"),
    [
        ("tmp/jax_cache", {}),
        ("srv/a/cl_cache", {}),
        ("tmp/torchinductor_root/fxgraph/wk", {}),
        ("opt/kept", {"JAX_COMPILATION_CACHE_DIR": "/opt/kept"}),
        ("opt/recipes/rank0", {"PT_HPU_RECIPE_CACHE_CONFIG": "/opt/recipes,false,8192"}),
    ],
)
def test_caches_whose_files_are_not_read_are_weighed(
    tmp_path: Path, place: str, environment: dict[str, str]
) -> None:
    written(tmp_path, place, {"jit_f-10a80fa6-cache": random.Random(1).randbytes(6_000_000)})
    tree = replace(read(tmp_path), environment=environment)
    (one,) = judged(tree).findings
    assert (one.rule, "a cache of compiled kernels" in one.message) == ("BM605", True)
    assert place.startswith(one.path or "?")


def test_package_files_are_one_finding_per_folder(tmp_path: Path) -> None:
    package = deb(tarred({"usr/lib/x86_64-linux-gnu/libcudart.so.12": RUNTIME}), "data.tar")
    written(
        tmp_path,
        "wheels",
        {
            "nvidia_cuda_runtime_cu12-12.8.90-py3-none-any.whl": WHEEL,
            "h11-0.16.0-py3-none-any.whl": zipped({"h11-0.16.0.dist-info/WHEEL": b"", "h.py": b""}),
        },
    )
    written(tmp_path, "var/cache/apt/archives", {"cuda-cudart-12-8_12.8.90-1_amd64.deb": package})
    written(tmp_path, "srv", {"cuda-cudart-12-8_12.8.90-1_amd64.deb": package})
    said = judged(read(tmp_path))
    assert [(one.rule, one.path, one.severity) for one in said.findings] == [
        ("BM605", "srv", "error"),
        ("BM605", "var/cache/apt/archives", "error"),
        ("BM605", "wheels", "error"),
    ]
    assert "2 package files" in said.findings[2].message
    assert judged(read(tmp_path), "cuda").findings == ()


def test_kernels_of_another_device_are_an_error_and_own_ones_a_note(tmp_path: Path) -> None:
    written(tmp_path, "root/.triton/cache/ab", {"kernel.so": KERNELS})
    tree = read(tmp_path)
    assert [one.severity for one in judged(tree).findings] == ["error"]
    assert [one.severity for one in judged(tree, "cuda", 100).findings] == ["note"]


def test_an_archive_of_an_application_is_the_images(tmp_path: Path) -> None:
    written(tmp_path, "app", {"engine.jar": zipped({"lib/libkernels.so": KERNELS})})
    said = judged(read(tmp_path))
    assert "BM401" in codes(said.findings)
    assert said.findings[0].path == "app/engine.jar!/lib/libkernels.so"


def test_an_archive_of_a_distribution_is_its_own(tmp_path: Path) -> None:
    """h2o's h2o.jar: kernels for CUDA that every gate let pass."""
    written(
        tmp_path,
        SITE,
        {
            "x/engine.jar": zipped({"lib/libkernels.so": KERNELS}),
            "x-1.dist-info/METADATA": b"Name: x\nVersion: 1\n",
            "x-1.dist-info/RECORD": b"x/engine.jar,,\n",
        },
    )
    said = judged(read(tmp_path), threshold=1)
    assert [(one.rule, one.distribution) for one in said.findings] == [("BM401", "x")]
    assert [one.verdict for one in said.verdicts] == ["bloat"]
