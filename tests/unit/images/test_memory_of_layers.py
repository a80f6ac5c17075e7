"""What is held of layers in memory: not what they keep for later, of which an image has 60 MB."""

from __future__ import annotations

import errno
import os
import random
import tracemalloc
from pathlib import Path

import pytest
from layer_archives import Blobs, configuration, differences, of_folder, tar, unpack

from buildmatrix.facts.trees.archive import Spool
from buildmatrix.images.image import LayerReader
from buildmatrix.images.merging import merge_layers
from buildmatrix.images.store.cache import Cache

SITE = "usr/lib/python3/dist-packages"
#: Bytes of Python that do not compress, of each layer.
SOURCE = 400 << 10
#: The same, with two imports.
LAYERS = [
    [
        (
            f"{SITE}/part{number}.py",
            b"import os\nimport sys\n#"
            + random.Random(number).randbytes(SOURCE // 2).hex().encode(),
        )
    ]
    for number in range(4)
]


def test_what_layers_keep_is_not_held_in_memory(tmp_path: Path) -> None:
    blobs = Blobs(*(tar(layer) for layer in LAYERS))
    for cache in (Cache(tmp_path), Cache(tmp_path), Cache(None)):  # read, known, read
        reader = LayerReader(cache)
        tracemalloc.start()
        layers = reader.layers(blobs.blobs)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        packed = sum(len(block) for layer in layers for block in layer.blocks)
        assert packed > len(LAYERS) * SOURCE // 2
        assert held < packed / 4


def test_what_rests_is_read_as_it_was(tmp_path: Path) -> None:
    unpack(tmp_path / "root", *LAYERS)
    blobs = Blobs(*(tar(layer) for layer in LAYERS))
    reader = LayerReader(Cache(tmp_path / "cache"))
    inventory = reader.inventory(configuration(len(LAYERS)), blobs.blobs, None)
    assert differences(inventory, of_folder(tmp_path / "root")) == {}
    tree = merge_layers(reader.layers(blobs.blobs))
    for layer in LAYERS:
        for path, data in layer:
            assert tree.read_bytes(path, len(data)) == data


def test_a_full_disk_costs_memory_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Spool, chunks: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Spool, "store", full)
    blobs = Blobs(*(tar(layer) for layer in LAYERS))
    tree = merge_layers(LayerReader(Cache(tmp_path)).layers(blobs.blobs))
    for layer in LAYERS:
        for path, data in layer:
            assert tree.read_bytes(path, len(data)) == data


def test_names_that_many_files_import_are_in_memory_once(tmp_path: Path) -> None:
    tree = merge_layers(LayerReader(Cache(None)).layers(Blobs(*map(tar, LAYERS)).blobs))
    outlines = [tree.file(path).facts.outline for layer in LAYERS for path, _ in layer]
    for outline in outlines[1:]:
        assert outline is not None and outlines[0] is not None
        assert outline.imports == ("os", "sys")
        assert all(a is b for a, b in zip(outline.imports, outlines[0].imports, strict=True))
