"""File name suffixes of device code, apart for callers that look only at names."""

from __future__ import annotations

#: Suffixes that only device code has, whatever its bytes look like (compressed, encrypted, newer):
#: of compilers, of MIGraphX, and of Triton's cache.
SUFFIXES = frozenset(
    {"cubin", "fatbin", "hipfb", "hsaco", "kpack", "ltoir", "ptx", "spv", "mxr",
     "ttir", "ttgir", "llir", "amdgcn", "zebin"}
)  # fmt: skip
_COMPRESSED = (".zst", ".gz", ".xz", ".bz2", ".lz4")


def strip_compression(name: str) -> str:
    """Return the name of a compressed file's content: `kernel.ptx` for `kernel.ptx.zst`."""
    for suffix in _COMPRESSED:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name
