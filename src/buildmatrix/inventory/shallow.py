"""The inventory of a tree of which not every file was opened."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from buildmatrix.elf.devicefile import SUFFIXES as DEVICE_SUFFIXES
from buildmatrix.inventory.collect import ELF_MAGIC, Seen, collect
from buildmatrix.inventory.model import ClosedFile, Inventory
from buildmatrix.inventory.names import owner_name
from buildmatrix.trees.base import File, Tree

_LIBRARY = re.compile(r"\.so(\.|$)")
#: What an accelerator may be given besides (`elf.devicefile`).
_SUFFIXES = DEVICE_SUFFIXES | {"a", "o", "bc", "engine", "bin", "dat"}
#: Suffixes that no binary of Linux has, and that matter to nobody here.
_HARMLESS_WORDS = """
    pyi pyx pxd pxi pyc typed pth c cc cpp cxx cu cuh h hh hpp hxx inl inc ipp tpp tcc def td cl f
    f90 s asm m mm metal rs go java js mjs cjs ts tsx jsx map css scss less html htm xhtml xml xsd
    xsl xslt dtd svg tex rst md txt json jsonl json5 yaml yml toml ini cfg conf csv tsv sql graphql
    proto fbs thrift ipynb png jpg jpeg gif ico bmp webp tif tiff pdf ps eps afm pfb ttf otf woff
    woff2 eot wav mp3 ogg flac mp4 mo po pot pem crt cer key gz bz2 xz zst zip tar npy npz mat nc h5
    hdf5 parquet feather arrow pkl pickle joblib pt pth onnx safetensors gguf dll exe pyd dylib lib
    pdb ilk exp bat cmd ps1 sh bash zsh fish csh cmake pc la am ac m4 in mk tmpl tpl j2 jinja mako
    template license licence rules modulemap qml qss ui qm icns plist gitignore stub
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
#: Names without a suffix that are text.
_TEXT = re.compile(
    r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|AUTHORS|README|CHANGES|CHANGELOG|CONTRIBUTORS|VERSION"
    r"|THANKS|NEWS|TODO|Makefile|Dockerfile|Kconfig|BUILD|WORKSPACE|METADATA|RECORD|WHEEL)",
    re.IGNORECASE,
)


def may_matter(path: str, size: int) -> bool:
    """Whether the file could be a binary, device code, or Python, as far as its name tells."""
    if size < len(ELF_MAGIC):
        return False
    folder, _, name = path.rpartition("/")
    if _LIBRARY.search(name) or name.endswith(".py"):
        return True
    parts = folder.split("/")
    if parts[0].endswith((".dist-info", ".egg-info")):
        return False
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem:
        # The standard library of C++ has headers without a suffix.
        return not (_TEXT.match(name) or "include" in parts or name.startswith("."))
    return suffix.lower() in _SUFFIXES or suffix.lower() not in _HARMLESS


class _Known:
    """A `collect.Memory` that knows every file: what was not looked at is nothing."""

    def __init__(self, seen: Mapping[str, Seen]) -> None:
        self._seen = seen

    def recall(self, file: File) -> Seen | None:
        """See `collect.Memory.recall`."""
        return self._seen.get(file.path, Seen())

    def keep(self, file: File, seen: Seen) -> None:
        """See `collect.Memory.keep`."""


def collect_shallow(tree: Tree, seen: Mapping[str, Seen], opened: Collection[str]) -> Inventory:
    """The facts of `tree`, of whose files only those in `seen` were looked into.

    The tree gives the bytes of metadata, and of the Python files in `seen`; no other file is
    opened. What may matter and is not `opened` is in `Inventory.closed`.
    """
    inventory = collect(tree, memory=_Known(seen))
    owners = [owner_name(one.name, one.version) for one in inventory.distributions]
    owner = owners[0] if len(owners) == 1 else None
    closed = tuple(
        ClosedFile(entry.path, entry.size, owner)
        for entry in tree.walk()
        if isinstance(entry, File)
        and entry.path not in opened
        and may_matter(entry.path, entry.size)
    )
    return replace(inventory, closed=closed, stats=replace(inventory.stats, cached=0))
