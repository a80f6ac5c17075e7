"""`fleet scan` over a real registry that fails: a part of what `bench/fleet_faults.py` does.

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

ROUNDS = (
    "registry killed and started again",
    "layer with another digest",
    "names and links that lead out",
    "worker killed",
    "writer killed in the middle of an entry",
    "entries cut, damaged, swapped",
    "two runs at once on one store",
    "registry password expires",
)
#: The registry is killed in each run of the tests; these wait for it in other ways.
WEEKLY = ("registry gone until the next run", "registry cuts bodies")
MOUNTS = ("store full", "store read-only")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    program = stack_program("docker-registry", "registry-prefix/usr/bin/docker-registry")
    with bed(tmp_path_factory.mktemp("bed"), program) as parts:
        yield parts


def one_round(parts: Bed, folder: Path, name: str) -> None:
    parts.proxy.reset()
    FAULTS[name](parts, random.Random(name), folder)


@pytest.mark.parametrize(
    "name", [*ROUNDS, *(pytest.param(name, marks=pytest.mark.weekly) for name in WEEKLY)]
)
def test_what_fails_costs_no_result(parts: Bed, tmp_path: Path, name: str) -> None:
    one_round(parts, tmp_path, name)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
@pytest.mark.parametrize("name", MOUNTS)
def test_a_store_that_takes_nothing_costs_no_result(parts: Bed, tmp_path: Path, name: str) -> None:
    one_round(parts, tmp_path, name)
