"""File name filters: files that may matter to an inventory or a rule."""

from __future__ import annotations

import re

from buildmatrix.facts.device_code.model import SUFFIXES

#: Bytes of the shortest mark that identifies a file.
_SHORTEST = 4
#: Bytes of the shortest ELF file that links anything.
_SHORTEST_BINARY = 256
_LIBRARY = re.compile(r"\.so(\.|$)")
#: Suffixes of further accelerator files (`facts.binaries.devicefile`).
_BINARY = SUFFIXES | {"a", "o", "bc", "engine", "bin", "dat"}
#: Suffixes of files that are never Linux binaries and that no rule examines.
_HARMLESS_WORDS = """
    pyi pyx pxd pxi pyc typed pth c cc cpp cxx cu cuh h hh hpp hxx inl inc ipp tpp tcc def td cl f
    f90 s asm m mm metal rs go java js mjs cjs ts tsx jsx map css scss less html htm xhtml xml xsd
    xsl xslt dtd svg tex rst md txt json jsonl json5 yaml yml toml ini cfg conf csv tsv sql graphql
    jl proto fbs thrift ipynb png jpg jpeg gif ico bmp webp tif tiff pdf ps eps afm pfb ttf otf woff
    woff2 eot wav mp3 ogg flac mp4 mo po pot pem crt cer key gz bz2 xz zst zip tar npy npz mat nc h5
    hdf5 parquet feather arrow pkl pickle joblib pt pth onnx safetensors gguf dll exe dylib lib
    pdb ilk exp bat cmd ps1 sh bash zsh fish csh cmake pc la am ac m4 in mk tmpl tpl j2 jinja mako
    template license licence rules modulemap qml qss ui qm icns plist gitignore stub
    class kt kotlin_metadata kotlin_module kotlin_builtins scala clj groovy properties mf sf jnilib
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
#: Bytes of an archive that must not stay unopened without a note.
LARGE_CONTAINER = 1 << 20
#: Smaller archives decide nothing.
SMALLEST_CONTAINER = 256
#: Archives and packages that may hold binaries. Data archives, as written by torch and NumPy, do
#: not.
_CONTAINERS = frozenset(
    {"zip", "jar", "war", "aar", "whl", "egg", "pex", "pyz", "pt2", "conda", "nupkg", "deb", "rpm",
     "tar", "tgz", "txz", "tbz2", "gz", "xz", "bz2", "zst", "7z", "run", "squashfs"}
)  # fmt: skip
#: Suffixes that rule a file out, whatever the rest of its name.
_NEVER = _HARMLESS - _CONTAINERS - _BINARY - {"pyc"}
#: Text files without a suffix.
_TEXT = re.compile(
    r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|AUTHORS|README|CHANGES|CHANGELOG|CONTRIBUTORS|VERSION"
    r"|THANKS|NEWS|TODO|Makefile|Dockerfile|Kconfig|BUILD|WORKSPACE|METADATA|RECORD|WHEEL)",
    re.IGNORECASE,
)


def may_be_container(path: str) -> bool:
    """True if the file could be an archive with binaries, by its name."""
    return path.rpartition(".")[2].lower() in _CONTAINERS


#: Smaller files decide nothing unless their name identifies them.
LEAST = 64 << 10


def may_hide(path: str, size: int) -> bool:
    """True if only the first bytes would show that the file is a binary.

    A loader ignores names: an ELF file named `model.onnx` or `README` still is one. So is one named
    `x.py`, but Python files are read for their imports first.
    """
    return size >= _SHORTEST_BINARY and not path.endswith(".py") and not may_matter(path, size)


def may_matter(path: str, size: int) -> bool:
    """True if the file could be a binary, device code, or Python, by its name."""
    if size < _SHORTEST:
        return False
    folder, _, name = path.rpartition("/")
    if name.rpartition(".")[2] in _NEVER and ".so." not in name:
        return False  # Nine of ten names in a wheel with headers, which may have 10,000.
    if _LIBRARY.search(name) or name.endswith(".py"):
        return True
    parts = folder.split("/")
    if name.endswith(".pyc"):
        return "__pycache__" not in parts
    if parts[0].endswith((".dist-info", ".egg-info")):
        return False
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem:
        # The C++ standard library has headers without a suffix.
        return not (_TEXT.match(name) or "include" in parts or name.startswith("."))
    if may_be_container(path):
        return size >= SMALLEST_CONTAINER
    return suffix.lower() in _BINARY or suffix.lower() not in _HARMLESS
