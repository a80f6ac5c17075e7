"""`fleet scan` over a real registry that fails: a few rounds of what `bench/fleet_faults.py` does.

The bench has all faults, 20 times each; these are those that cost the least.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import stack_program
from fleet_bed import Bed, bed
from fleet_faults import FAULTS

#: Fault → how often.
ROUNDS = {
    "registry killed and started again": 2,
    "registry gone until the next run": 1,
    "registry resets connections": 1,
    "registry cuts bodies": 1,
    "layer with another digest": 1,
    "index that names itself": 1,
    "names and links that lead out": 1,
    "worker killed": 1,
    "writer killed in the middle of an entry": 1,
    "entries cut, damaged, swapped": 1,
    "two runs at once on one store": 1,
    "registry token expires": 1,
    "registry password expires": 1,
}
MOUNTS = {"store full": 1, "store read-only": 1}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    program = stack_program("docker-registry", "registry-prefix/usr/bin/docker-registry")
    with bed(tmp_path_factory.mktemp("bed"), program) as parts:
        yield parts


def rounds(parts: Bed, folder: Path, name: str, times: int) -> None:
    for number in range(times):
        parts.proxy.reset()
        own = folder / str(number)
        own.mkdir()
        FAULTS[name](parts, random.Random(f"{name} {number}"), own)


@pytest.mark.parametrize("name", ROUNDS)
def test_what_fails_costs_no_result(parts: Bed, tmp_path: Path, name: str) -> None:
    rounds(parts, tmp_path, name, ROUNDS[name])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
@pytest.mark.parametrize("name", MOUNTS)
def test_a_store_that_takes_nothing_costs_no_result(parts: Bed, tmp_path: Path, name: str) -> None:
    rounds(parts, tmp_path, name, MOUNTS[name])
