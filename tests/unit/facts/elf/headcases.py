"""Reading a part of an ELF file, and holding it against all of it."""

from __future__ import annotations

from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.binaries.stream import Head, HeadReader
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.trees.archive import BytesSource


def whole(data: bytes) -> Elf:
    elf = read_elf(BytesSource(data), len(data))
    assert elf is not None
    return elf


def fed(data: bytes, up_to: int, step: int) -> Head:
    reader = HeadReader(BytesSource(data), len(data))
    for at in range(step, up_to + step, step):
        reader.read_to(min(up_to, at))
    head = reader.head()
    assert head is not None
    return head


def assert_says_no_more(head: Elf, full: Elf) -> None:
    assert (head.bits, head.machine, head.type) == (full.bits, full.machine, full.type)
    libraries = {*full.needed, *(one.library for one in full.version_needs), full.soname}
    assert set(head.linked_names) <= libraries
    assert set(head.needed) <= set(full.needed)
    assert {one.text for one in head.literals} <= {one.text for one in full.literals}
    assert {one.name for one in head.marks} <= {one.name for one in full.marks}
    assert set(head.version_needs) <= set(full.version_needs)
    codes = {(one.format, one.kind, one.arch) for one in full.device_code}
    assert {(one.format, one.kind, one.arch) for one in head.device_code} <= codes
    for field in ("soname", "interpreter", "build_id", "abi_tag"):
        assert getattr(head, field) in (None, getattr(full, field))
