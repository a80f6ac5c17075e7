"""Device code in a file as we read it, for tests that hold it against a vendor's tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from buildmatrix.facts.binaries.devicefile import read_device_file
from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.trees.archive import BytesSource

In = TypeVar("In")
Out = TypeVar("Out")


def side_by_side(work: Callable[[In], Out], items: Iterable[In]) -> list[Out]:
    """Results, two made at a time: the work is done by other processes."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, items))


def read_codes(path: Path) -> tuple[Counter[str], list[str]]:
    """How often we see each code (`sass sm_90a`) in a file, and what we could not read."""
    data = path.read_bytes()
    source = BytesSource(data)
    facts = read_device_file(source, len(data), path.name) or read_elf(source, len(data))
    assert facts is not None
    seen: Counter[str] = Counter()
    for code in facts.device_code:
        seen[f"{code.kind} {code.arch}"] += code.count
    return seen, [*filter(None, (code.note for code in facts.device_code)), *facts.unread]
