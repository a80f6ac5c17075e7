"""Layers of files: in their order, with the folders above them, and written."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from buildmatrix.engines.oci.base_files import BaseFiles
from buildmatrix.engines.oci.installation import InstalledFile
from buildmatrix.engines.oci.store import ImageStore
from buildmatrix.oci.compression import Compression
from buildmatrix.oci.layers import LayerEntry, StoredLayer, layer_writer, sort_key


def with_folders(files: Mapping[str, InstalledFile], base: BaseFiles) -> list[InstalledFile]:
    """`files` with the folders above them, in the order of a layer."""
    complete = dict(files)
    for path in files:
        while path := posixpath.dirname(path):
            if path not in complete:
                complete[path] = InstalledFile(folder(path, base))
    return [complete[path] for path in sorted(complete, key=sort_key)]


def folder(path: str, base: BaseFiles) -> LayerEntry:
    """A folder above a file, as it is: a layer that holds a file says what its folders are."""
    there = base.entries.get(path)
    if there is None:
        return LayerEntry(path, "folder", 0o755)
    owner = there.attributes
    return LayerEntry(path, "folder", owner.mode, user=owner.uid, group=owner.gid)


def write_layer(
    files: Iterable[InstalledFile], store: ImageStore, compression: Compression
) -> StoredLayer:
    """A layer of `files`, in their order; its blob is in `store`."""
    with layer_writer(store.layout, compression, store.pool) as writer:
        for file in files:
            writer.add(file.entry, file.content())
    return writer.layer
