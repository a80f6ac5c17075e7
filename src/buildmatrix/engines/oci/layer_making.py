"""Creation of layers: sorted files, their parent folders, and the blob."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from buildmatrix.engines.oci.base_files import BaseFiles
from buildmatrix.engines.oci.installation import InstalledFile
from buildmatrix.engines.oci.store import ImageStore
from buildmatrix.oci.compression import Compression
from buildmatrix.oci.layers import LayerEntry, StoredLayer, layer_writer, sort_key


def with_folders(files: Mapping[str, InstalledFile], base: BaseFiles) -> list[InstalledFile]:
    """Return `files` with their parent folders, in the order of a layer."""
    complete = dict(files)
    for path in files:
        while path := posixpath.dirname(path):
            if path not in complete:
                complete[path] = InstalledFile(folder(path, base))
    return [complete[path] for path in sorted(complete, key=sort_key)]


def folder(path: str, base: BaseFiles) -> LayerEntry:
    """Return a parent folder with the attributes of the base, as layers override these."""
    there = base.entries.get(path)
    if there is None:
        return LayerEntry(path, "folder", 0o755)
    owner = there.attributes
    return LayerEntry(path, "folder", owner.mode, user=owner.uid, group=owner.gid)


def write_layer(
    files: Iterable[InstalledFile], store: ImageStore, compression: Compression
) -> StoredLayer:
    """Write a layer of `files`, in their order, to `store`."""
    with layer_writer(store.layout, compression, store.pool) as writer:
        for file in files:
            writer.add(file.entry, file.content())
    return writer.layer
