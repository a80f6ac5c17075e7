"""Names of files that hold device code; apart, for callers that only look at names."""

from __future__ import annotations

#: Suffixes that only device code has, whatever the bytes look like (compressed, encrypted, newer):
#: of compilers, of MIGraphX, and of Triton's cache.
SUFFIXES = frozenset(
    {"cubin", "fatbin", "hipfb", "hsaco", "kpack", "ltoir", "ptx", "spv", "mxr",
     "ttir", "ttgir", "llir", "amdgcn", "zebin"}
)  # fmt: skip
_COMPRESSED = (".zst", ".gz", ".xz", ".bz2", ".lz4")


def uncompressed(name: str) -> str:
    """The name of what a compressed file holds: `kernel.ptx` for `kernel.ptx.zst`."""
    for suffix in _COMPRESSED:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name
