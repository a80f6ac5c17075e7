"""What the ends and middles of large real libraries prove, by few of their bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Buildmatrix

from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.depth import read_parts
from buildmatrix.net.machine_indexes import default_indexes

pytestmark = pytest.mark.network


def looked_into(project: str, start: str, most: int) -> Inventory:
    """The facts of one wheel, by `most` bytes of it beyond its list of files."""
    index = next(url for url in default_indexes() if url.startswith("http"))
    with Client() as client:
        (file,) = (
            one
            for one in client.project(index, project)
            if one.filename.startswith(start) and one.filename.endswith("x86_64.whl")
        )
        remote = client.open(file.url)
        inventory = read_parts(remote, "heads", most).inventory
        assert remote.bytes_read < most * 2 + 1_000_000 < remote.size / 10
    return inventory


def test_a_section_whose_name_is_out_of_reach_is_known_by_what_lies_in_the_middle() -> None:
    inventory = looked_into("catboost", "catboost-1.2.10-cp311-cp311-manylinux2014", 3_000_000)
    (library,) = (one for one in inventory.binaries if one.path == "catboost/_catboost.so")
    # readelf -SW: [10] .nv_fatbin PROGBITS, size 0xd598c08
    assert [(one.name, one.size) for one in library.elf.sections] == [(".nv_fatbin", 223_972_360)]


def test_what_large_libraries_link_is_known_by_their_ends() -> None:
    start = "onnxruntime_gpu-1.31.1-cp311-cp311-manylinux"
    inventory = looked_into("onnxruntime-gpu", start, 3_000_000)
    needed = {one.path.rpartition("/")[2]: one.elf.needed for one in inventory.binaries}
    assert {"libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13"} <= set(
        needed["libonnxruntime_providers_cuda.so"]
    )
    assert "libcudart.so.13" in needed["libonnxruntime_providers_tensorrt.so"]


def test_a_library_that_an_import_loads_without_a_version_breaks_it(
    buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    done = buildmatrix(
        tmp_path, "audit", "pypi:cufile-python==0.2.0", "--backend", "cpu", "--no-cache",
        "--no-vulnerabilities", "--no-progress", "--format", "json",
    )  # fmt: skip
    report = json.loads(done.out)
    assert done.code == 1
    (one,) = (one for one in report["distributions"] if one["name"] == "cufile-python")
    assert one["verdict"] == "broken"
    assert [(one["rule"], one["severity"]) for one in report["findings"]] == [("BM502", "error")]
