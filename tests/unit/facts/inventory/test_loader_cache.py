"""ld.so.cache, also of other byte orders and with lies in it."""

from __future__ import annotations

import struct

import pytest

from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary, CachedLibrary, Inventory
from buildmatrix.facts.inventory.system import read_cache
from buildmatrix.facts.loader import resolve


def cache(order: str = "<", *, levels: tuple[str, ...] = ("x86-64-v3",)) -> bytes:
    """A cache with a plain entry for libx.so and one in the folder of the first level."""
    strings = b"libx.so\0/opt/libx.so\0/opt/glibc-hwcaps/v/libx.so\0"
    entries_at, entry = 48, struct.Struct(order + "iIIIQ")
    strings_at = entries_at + 2 * entry.size
    names_at = strings_at + len(strings)
    names = b"".join(level.encode() + b"\0" for level in levels)
    extension_at = (names_at + len(names) + 7) & ~7
    table_at = extension_at + 8 + 16
    offsets, at = [], names_at
    for level in levels:
        offsets.append(at)
        at += len(level) + 1
    body = struct.pack(
        order + "IIB3xI12x", 2, len(strings) + len(names), 2 if order == "<" else 3, extension_at
    )
    body += entry.pack(0x0303, strings_at, strings_at + 21, 0, 1 << 62)
    body += entry.pack(0x0303, strings_at, strings_at + 8, 0, 0)
    data = b"glibc-ld.so.cache1.1" + body + strings + names
    data += bytes(extension_at - len(data))
    data += struct.pack(order + "II", 0xEAA42174, 1)
    data += struct.pack(order + "IIII", 1, 0, table_at, 4 * len(levels))
    return data + b"".join(struct.pack(order + "I", offset) for offset in offsets)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("before", [b"", b"ld.so-1.7.0\0" + bytes(12)], ids=["new", "after-old"])
def test_entries_are_read_in_both_byte_orders_and_behind_the_old_format(
    order: str, before: bytes
) -> None:
    assert read_cache(before + cache(order)) == (
        CachedLibrary("libx.so", "/opt/glibc-hwcaps/v/libx.so", 0x0303, "x86-64-v3"),
        CachedLibrary("libx.so", "/opt/libx.so", 0x0303),
    )


@pytest.mark.parametrize("cut", [0, 10, 25, 60, 100])
def test_a_cache_that_is_cut_short_is_told(cut: int) -> None:
    with pytest.raises(ValueError, match=r"ld\.so\.cache"):
        read_cache(cache()[:cut])


@pytest.mark.parametrize("at", range(20, 96, 4))
def test_numbers_that_lie_give_an_answer_or_a_sentence(at: int) -> None:
    data = bytearray(cache())
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    try:
        read_cache(bytes(data))
    except ValueError as error:
        assert "ld.so.cache" in str(error)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [(("x86-64-v3",), "opt/glibc-hwcaps/v/libx.so"), ((), "opt/libx.so")],
)
def test_only_folders_that_the_processor_can_use_answer(
    levels: tuple[str, ...], expected: str
) -> None:
    def binary(path: str, *needed: str) -> Binary:
        return Binary(path, 1, Elf(64, True, "x86_64", "dyn", needed=needed))

    inventory = Inventory(
        binaries=(
            binary("a/_c.so", "libx.so"),
            binary("opt/libx.so"),
            binary("opt/glibc-hwcaps/v/libx.so"),
        ),
        loader_cache=read_cache(cache()),
    )
    (entry,) = resolve(inventory, {"x86_64": levels}).needed
    assert (entry.path, entry.rule) == (expected, "cache")
