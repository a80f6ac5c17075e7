"""A table of contents spares bytes, and is believed only as far as it can be checked."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from layer_archives import (
    Blobs,
    Entry,
    configuration,
    differences,
    folder,
    hard,
    link,
    of_folder,
    unpack,
)
from tables_of_contents import stargz, zstd_chunked
from test_merged_layers import LOADS, SITE, metadata, zipped
from test_python_loading import ELF

from buildmatrix.errors import UndecidedError
from buildmatrix.inventory.model import Inventory
from buildmatrix.layers.image import LayerBlob, LayerReader
from buildmatrix.layers.table import STARGZ_DIGEST, ZSTD_POSITION
from buildmatrix.store.cache import Cache

LARGE = random.Random(1).randbytes(3_000_000)
ENTRIES: list[Entry] = [
    folder("usr"),
    *metadata("demo", "demo/__init__.py", "demo/_C.so"),
    (f"{SITE}/demo/__init__.py", LOADS),
    (f"{SITE}/demo/_C.so", ELF + b"c"),
    hard("usr/lib/copy.so", f"{SITE}/demo/_C.so"),
    link("usr/lib/link.so", "copy.so"),
    ("opt/tool.jar", zipped("a/libinside.so")),
    ("srv/model.bin", LARGE),
    ("srv/empty", b""),
    ("opt/odd", b"none"),
]
WRITERS = pytest.mark.parametrize("write", [stargz, zstd_chunked], ids=["eStargz", "zstd:chunked"])


def with_table(layer: bytes, annotations: dict[str, str], *, ranges: bool = True) -> Blobs:
    blobs = Blobs(layer)

    def read_range(offset: int, length: int) -> bytes:
        if not ranges:
            raise UndecidedError("the registry gives no ranges")
        return layer[offset : offset + length]

    blobs.blobs = [
        replace(blob, annotations=annotations, read_range=read_range) for blob in blobs.blobs
    ]
    return blobs


def read(
    blobs: list[LayerBlob], *, tables: bool = True, cache: Cache | None = None
) -> tuple[Inventory, LayerReader, list[str]]:
    notes: list[str] = []
    reader = LayerReader(cache or Cache(None), tables=tables, note=notes.append)
    return reader.inventory(configuration(len(blobs)), blobs, None), reader, notes


def without_table(inventory: Inventory) -> Inventory:
    """eStargz puts its table into the layer, as a file."""
    return replace(inventory, stats=replace(inventory.stats, files=0, bytes_total=0))


# podman's first parts are often shorter than what tells data from the image of a file system.
@pytest.mark.parametrize("part", [64 << 10, 9 << 10])
@WRITERS
def test_a_few_ranges_say_what_the_whole_layer_says(
    write: Callable[..., tuple[bytes, dict[str, str]]], part: int, tmp_path: Path
) -> None:
    layer, annotations = write(ENTRIES, part)
    blobs = with_table(layer, annotations)
    whole, by_all, _ = read(blobs.blobs, tables=False)
    assert (by_all.believed, blobs.opened) == ([], [1])
    by_table, reader, notes = read(blobs.blobs)
    assert (len(reader.believed), blobs.opened, notes) == (1, [1], [])
    assert differences(by_table, whole) == {}
    assert reader.bytes_read == by_table.stats.bytes_read < len(layer) // 20
    unpack(tmp_path, ENTRIES)
    unpacked = without_table(of_folder(tmp_path))
    assert differences(without_table(by_table), unpacked) == {}
    assert by_table.closed == ()


@pytest.mark.parametrize("part", [64 << 10, 9 << 10])
@WRITERS
def test_a_large_binary_is_read_in_part_and_says_so(
    write: Callable[..., tuple[bytes, dict[str, str]]], part: int
) -> None:
    binary = Path(os.path.realpath("/proc/self/exe")).read_bytes()
    library = binary + LARGE  # More than any part.
    blobs = with_table(*write([("opt/app", library), ("srv/model.bin", LARGE)], part))
    inventory, reader, _ = read(blobs.blobs)
    (item,) = inventory.binaries
    assert item.elf.needed and item.elf.read is not None and item.elf.read < len(library)
    assert reader.bytes_read < blobs.blobs[0].size // 5
    whole, _, _ = read(blobs.blobs, tables=False)
    assert whole.binaries[0].elf.needed == item.elf.needed
    assert whole.binaries[0].elf.read is None


def of_name(entries: list[dict[str, Any]], end: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"].endswith(end))


LIES: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "a digest": lambda told: of_name(told, "_C.so").update(chunkDigest="sha256:" + 64 * "0"),
    "no digest": lambda told: of_name(told, "_C.so").update(chunkDigest="", digest=""),
    "a place": lambda told: of_name(told, "_C.so").update(offset=3),
    "a size": lambda told: of_name(told, "_C.so").update(size=10),
    "more than all": lambda told: of_name(told, "_C.so").update(offset=1 << 60),
    "a negative place": lambda told: of_name(told, "_C.so").update(offset=-5),
    "a part of nothing": lambda told: told.append({"name": "no", "type": "chunk"}),
    "a wrong kind": lambda told: of_name(told, "_C.so").update(size="many"),
}


@WRITERS
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_table_that_lies_is_not_used(
    write: Callable[..., tuple[bytes, dict[str, str]]], lie: Callable[[list[Any]], object]
) -> None:
    layer, annotations = write(ENTRIES, 64 << 10, lie)
    blobs = with_table(layer, annotations)
    inventory, reader, notes = read(blobs.blobs)
    assert (reader.believed, blobs.opened) == ([], [1])
    assert "is read whole: " in notes[0]
    assert {item.path for item in inventory.binaries} >= {f"{SITE}/demo/_C.so"}


@WRITERS
def test_what_the_table_hides_is_not_hidden_where_nobody_believes_it(
    write: Callable[..., tuple[bytes, dict[str, str]]], tmp_path: Path
) -> None:
    def hide(told: list[dict[str, Any]]) -> None:
        told.remove(of_name(told, "_C.so"))
        told.remove(of_name(told, "copy.so"))

    blobs = with_table(*write(ENTRIES, 64 << 10, hide))
    cache = Cache(tmp_path)
    hidden, reader, _ = read(blobs.blobs, cache=cache)
    # It cannot be seen without reading the layer: so it is told that the table was believed.
    assert hidden.binaries == tuple(one for one in hidden.binaries if one.container)
    assert reader.believed == [blobs.blobs[0].digest]
    # And what it said is not kept for those who do not.
    inventory, reader, _ = read(blobs.blobs, tables=False, cache=cache)
    assert (reader.believed, blobs.opened) == ([], [1])
    assert f"{SITE}/demo/_C.so" in {item.path for item in inventory.binaries}
    # Once the layer was read, its table is not needed.
    _, reader, _ = read(blobs.blobs, cache=cache)
    assert (reader.believed, reader.bytes_read) == ([], 0)


def test_another_table_than_the_manifest_names_is_not_used() -> None:
    layer, annotations = stargz(ENTRIES, 64 << 10)
    blobs = with_table(layer, {**annotations, STARGZ_DIGEST: "sha256:" + 64 * "0"})
    _, reader, notes = read(blobs.blobs)
    assert reader.believed == [] and "another digest" in notes[0]


def test_a_layer_whose_footer_is_gone_is_read_whole() -> None:
    layer, annotations = stargz(ENTRIES, 64 << 10)
    blobs = with_table(layer[:-51], annotations)
    _, reader, notes = read(blobs.blobs)
    assert (reader.believed, blobs.opened) == ([], [1])
    assert "no footer of eStargz" in notes[0]


def test_a_layer_of_which_most_matters_is_read_whole() -> None:
    blobs = with_table(*stargz(ENTRIES, 4 << 20))
    _, reader, notes = read(blobs.blobs)
    assert (reader.believed, blobs.opened) == ([], [1])
    assert "most of it would be read" in notes[0]


@pytest.mark.parametrize(
    "position", ["", "1:2:3", "0:99999999999:5:1", "-1:5:5:1", "5:5:5:2", "a:b:c:d"]
)
def test_a_place_that_is_none_is_not_used(position: str) -> None:
    layer, annotations = zstd_chunked(ENTRIES)
    blobs = with_table(layer, {**annotations, ZSTD_POSITION: position})
    _, reader, notes = read(blobs.blobs)
    assert (reader.believed, blobs.opened, len(notes)) == ([], [1], 1)


def test_a_registry_without_ranges_gives_the_layer() -> None:
    blobs = with_table(*stargz(ENTRIES), ranges=False)
    _, reader, notes = read(blobs.blobs)
    assert (reader.believed, blobs.opened) == ([], [1])
    assert "no ranges" in notes[0]
