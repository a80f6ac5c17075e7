"""Every input that once broke a reader still keeps the promises, whole and cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from elf_promises import keeps_promises

CASES = sorted((Path(__file__).parent / "cases").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_found_case_keeps_the_promises(case: Path) -> None:
    data = case.read_bytes()
    for end in (len(data), len(data) // 2, len(data) - 1):
        keeps_promises(data[:end])
