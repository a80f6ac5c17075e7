"""File name suffixes of device code, apart for callers that look only at names."""

from __future__ import annotations

#: Suffixes that only device code has, whatever its bytes look like (compressed, encrypted, newer):
#: of compilers, of MIGraphX, and of Triton's cache.
SUFFIXES = frozenset(
    {"cubin", "fatbin", "hipfb", "hsaco", "kpack", "ltoir", "ptx", "spv", "mxr",
     "ttir", "ttgir", "llir", "amdgcn", "zebin"}
)  # fmt: skip
