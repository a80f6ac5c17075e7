"""A table of contents costs bounded memory and time, and says nothing of another table's layer."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elf_images import Image, Part
from layer_archives import configuration, link
from tables_of_contents import digest_of, stargz, zstandard, zstd_chunked
from test_merged_layers import SITE
from test_tables_of_contents import ENTRIES, LARGE, read, with_table

from buildmatrix.inventory.model import Inventory
from buildmatrix.layers import table
from buildmatrix.layers.image import LayerBlob, LayerReader
from buildmatrix.layers.table import LARGEST_PART, PackedRange, unpacked
from buildmatrix.store.cache import Cache
from buildmatrix.store.facts import FactCache
from buildmatrix.trees.base import Unreadable


def kept(blob: LayerBlob, cache: Cache) -> Inventory:
    reader = LayerReader(cache, tables=True)
    return reader.inventory(configuration(1), [blob], FactCache(cache))


def test_what_one_table_says_of_a_layer_is_not_found_by_another_one(tmp_path: Path) -> None:
    """Whoever serves an image can name the digest of any layer beside a table of its own."""

    def hide(told: list[dict[str, Any]]) -> None:
        told[:] = [entry for entry in told if not entry["name"].endswith((".so", ".jar"))]

    (good,) = with_table(*stargz(ENTRIES, 64 << 10)).blobs
    (other,) = with_table(*stargz(ENTRIES, 64 << 10, hide)).blobs
    cache = Cache(tmp_path)
    assert kept(replace(other, digest=good.digest), cache).binaries == ()
    assert f"{SITE}/demo/_C.so" in {item.path for item in kept(good, cache).binaries}


@pytest.mark.parametrize("is_zstd", [False, True], ids=["gzip", "zstd"])
def test_a_part_that_inflates_to_too_much_is_not_inflated(is_zstd: bool) -> None:
    data = bytes(4 * LARGEST_PART)
    packed = zstandard(data) if is_zstd else gzip.compress(data)
    part = PackedRange(0, len(data), 0, len(packed), 0, digest_of(data))
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="too large"):
            unpacked(part, packed, is_zstd=is_zstd)
        assert tracemalloc.get_traced_memory()[1] < LARGEST_PART
    finally:
        tracemalloc.stop()


def test_zeros_of_any_number_take_no_memory() -> None:
    size = 1 << 50

    def zeros(told: list[dict[str, Any]]) -> None:
        told.append(
            {"name": "opt/big.so", "type": "reg", "size": size, "chunkSize": size}
            | {"chunkType": "zeros", "digest": digest_of(b"")}
        )

    blobs = with_table(*zstd_chunked(ENTRIES, 64 << 10, zeros))
    _, reader, notes = read(blobs.blobs)
    assert (reader.believed, blobs.opened) == ([], [1])
    assert "too large" in notes[0]


@pytest.mark.parametrize("is_zstd", [False, True], ids=["gzip", "zstd"])
def test_members_that_hold_nothing_end(is_zstd: bool) -> None:
    empty = zstandard(b"") if is_zstd else gzip.compress(b"", mtime=0)
    part = PackedRange(0, 5, 0, 0, 0, digest_of(b"bytes"))
    with pytest.raises(Unreadable, match="more than 1000 members"):
        unpacked(part, empty * 2000, is_zstd=is_zstd)
    last = zstandard(b"bytes") if is_zstd else gzip.compress(b"bytes")
    assert unpacked(part, empty * 900 + last + b"behind", is_zstd=is_zstd) == b"bytes"


def test_files_that_name_the_same_parts_cannot_have_a_layer_read_many_times() -> None:
    # All of its data is searched for names of libraries.
    data = random.Random(7).randbytes(2 << 20)
    binary = Image(needed=["libc.so.6"], parts=[Part(".rodata", data)]).build()

    def repeat(told: list[dict[str, Any]]) -> None:
        parts = [entry for entry in told if entry["name"] == "opt/app"]
        for number in range(200):
            told.extend({**entry, "name": f"opt/{number}"} for entry in parts)

    entries = [("opt/app", binary + LARGE), ("srv/model.bin", LARGE)]
    layer, annotations = stargz(entries, 64 << 10, repeat)
    blobs = with_table(layer, annotations)
    inventory, reader, notes = read(blobs.blobs)
    assert (reader.believed, blobs.opened) == ([], [1])
    assert "more would be read by its table of contents than it has" in notes[0]
    assert reader.bytes_read < 3 * len(layer)
    assert {item.path for item in inventory.binaries} == {"opt/app"}


def test_entries_are_counted_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_ENTRIES", 4)
    monkeypatch.setattr(table, "_TABLE", None)
    _, reader, notes = read(with_table(*stargz(ENTRIES, 64 << 10)).blobs)
    assert reader.believed == [] and "more than 4 entries" in notes[0]


def test_a_layer_that_is_read_after_all_is_held_against_the_configuration() -> None:
    """A table names no digest of the whole; where a link has the layer read again, it is there."""
    folders = ("usr/share/loader", b"/opt/one\n")
    entries = [*ENTRIES, folders, link("etc/ld.so.conf", "/usr/share/loader")]
    blobs = with_table(*stargz(entries, 64 << 10))
    reader = LayerReader(Cache(None), tables=True)
    with pytest.raises(Unreadable, match="another one than the configuration says"):
        reader.inventory(configuration(1, "sha256:" + 64 * "0"), blobs.blobs, None)
    assert (len(reader.believed), blobs.opened) == (1, [1])
