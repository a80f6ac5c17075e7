"""Honest inputs, every input that once broke a promise, and both cut short, keep the promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import promises
import pytest
import seeds
from lock_cases import CPU

from buildmatrix.locks.selection import LockSelection

CASES = Path(__file__).parent / "cases"


def inputs(kind: str, honest: list[bytes]) -> list[object]:
    return [*_inputs(kind, honest)]


def _inputs(kind: str, honest: list[bytes]) -> Iterator[object]:
    for number, data in enumerate(honest):
        yield pytest.param(data, id=f"honest-{number}")
    for case in sorted(CASES.glob(f"{kind}-*")):
        yield pytest.param(case.read_bytes(), id=case.name)


def pieces(data: bytes) -> list[bytes]:
    return [data, data[: len(data) // 2], data[:-1]]


@pytest.mark.parametrize("data", inputs("wheel", seeds.wheels()))
def test_a_wheel_is_refused_or_has_the_members_that_an_installer_would_write(data: bytes) -> None:
    for piece in pieces(data):
        promises.wheel(piece)


@pytest.mark.parametrize("data", inputs("page", seeds.pages()))
def test_a_page_of_an_index_is_refused_or_names_files(data: bytes) -> None:
    for piece in pieces(data):
        promises.page(piece)


@pytest.mark.parametrize("data", inputs("lock", seeds.locks()))
def test_a_lock_is_refused_with_words_or_read(data: bytes, tmp_path: Path) -> None:
    for piece in pieces(data):
        promises.lock(piece, LockSelection(tmp_path / "lock", "lock", CPU))


@pytest.mark.parametrize("data", inputs("tree", seeds.trees(b"\x7fELF\x02\x01\x01" + bytes(60))))
def test_an_image_of_any_files_has_an_inventory(data: bytes) -> None:
    for piece in pieces(data):
        promises.tree(piece)
