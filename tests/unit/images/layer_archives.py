"""Layers written as archives, and unpacked as a container's runtime would."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.images.image import LayerBlob, LayerReader
from buildmatrix.images.saved_image import Configuration
from buildmatrix.images.store.cache import Cache

#: Name → bytes of a file; other kinds are TarInfo.
Entry = tuple[str, bytes] | tarfile.TarInfo


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def link(name: str, target: str) -> tarfile.TarInfo:
    return special(name, tarfile.SYMTYPE, target)


def hard(name: str, target: str) -> tarfile.TarInfo:
    return special(name, tarfile.LNKTYPE, target)


def folder(name: str) -> tarfile.TarInfo:
    info = special(name, tarfile.DIRTYPE)
    info.mode = 0o755
    return info


def tar(entries: Sequence[Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                out.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                out.addfile(info, io.BytesIO(entry[1]))
    return buffer.getvalue()


class Blobs:
    """Layers in memory that count how often each is opened."""

    def __init__(self, *layers: bytes) -> None:
        self.opened = [0] * len(layers)
        self.blobs = [self._blob(number, data) for number, data in enumerate(layers)]

    def _blob(self, number: int, data: bytes) -> LayerBlob:
        @contextmanager
        def opened() -> Iterator[Iterator[bytes]]:
            self.opened[number] += 1
            yield (data[at : at + 7777] for at in range(0, len(data), 7777))

        return LayerBlob(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data), opened)


def configuration(layers: int, *digests: str) -> Configuration:
    return Configuration({}, {}, (), digests or ("",) * layers, ("",) * layers)


def of_layers(*layers: Sequence[Entry], squeeze: Callable[[bytes], bytes] = bytes) -> Inventory:
    """The inventory of the image with these layers, the lowest first."""
    blobs = Blobs(*(squeeze(tar(layer)) for layer in layers))
    return LayerReader(Cache(None)).inventory(configuration(len(layers)), blobs.blobs, None)


def of_folder(root: Path) -> Inventory:
    """The inventory of the unpacked files."""
    with DirectoryTree(root) as tree:
        return collect(tree)


def differences(image: Inventory, unpacked: Inventory) -> dict[str, tuple[object, object]]:
    """Fields in which two inventories differ, but for what only layers have, and what it cost."""

    def plain(inventory: Inventory) -> Inventory:
        stats = replace(inventory.stats, bytes_read=0, seconds=0.0, cached=0)
        return replace(inventory, stats=stats, layers=(), origins={}, buried=())

    one, other = plain(image), plain(unpacked)
    return {
        field.name: (getattr(one, field.name), getattr(other, field.name))
        for field in fields(Inventory)
        if getattr(one, field.name) != getattr(other, field.name)
    }


def unpack(root: Path, *layers: Sequence[Entry]) -> None:
    """Put the layers into `root`, one over the other, with the system's own calls.

    As the image specification has it: whiteouts first, they hide what lies below. For layers whose
    names lead through no link.
    """
    for layer in layers:
        for entry in layer:
            name = entry[0] if isinstance(entry, tuple) else entry.name
            place, last = (root / name).parent, name.rpartition("/")[2]
            if last == ".wh..wh..opq" and place.is_dir():
                for inner in place.iterdir():
                    _remove(inner)
            elif last.startswith(".wh.") and not last.startswith(".wh..wh."):
                _remove(place / last.removeprefix(".wh."))
        for entry in layer:
            name = entry[0] if isinstance(entry, tuple) else entry.name
            if not name.rpartition("/")[2].startswith(".wh."):
                _put(root, name, entry)


def _put(root: Path, name: str, entry: Entry) -> None:
    path = root / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        return
    if isinstance(entry, tuple):
        _remove(path)
        path.write_bytes(entry[1])
    elif entry.isdir():
        if not path.is_dir() or path.is_symlink():
            _remove(path)
            path.mkdir()
    elif entry.issym():
        _remove(path)
        path.symlink_to(entry.linkname)
    elif entry.islnk():
        target = root / entry.linkname
        if target != path and (target.is_symlink() or target.is_file()):
            _remove(path)
            os.link(target, path, follow_symlinks=False)
    else:
        _remove(path)
        os.mkfifo(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
