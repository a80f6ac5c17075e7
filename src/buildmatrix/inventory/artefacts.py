"""Which files that are no ELF matter to an accelerator: told by first bytes or suffix."""

from __future__ import annotations

#: Bytes of the head that `artefact_kind` wants to see.
HEAD = 64

# The kind is the suffix that such a file usually has. In order: LLVM bitcode and its wrapper,
# NVIDIA fat binary, clang-offload-bundler (plain and compressed), ROCm's kpack, SPIR-V in both byte
# orders, ar(5) archives (also thin).
_MAGIC = (
    (b"BC\xc0\xde", "bc"),
    (b"\xde\xc0\x17\x0b", "bc"),
    (b"\x50\xed\x55\xba", "fatbin"),
    (b"__CLANG_OFFLOAD_BUNDLE__", "hipfb"),
    (b"CCOB", "hipfb"),
    (b"KPAK", "kpack"),
    (b"\x03\x02\x23\x07", "spv"),
    (b"\x07\x23\x02\x03", "spv"),
    (b"!<arch>\n", "a"),
    (b"!<thin>\n", "a"),
)

#: Suffixes that only device code has, whatever the bytes look like (compressed, encrypted, newer).
_SUFFIXES = frozenset({"cubin", "fatbin", "hipfb", "hsaco", "kpack", "ltoir", "ptx", "spv"})


def artefact_kind(name: str, head: bytes) -> str | None:
    """The kind of a file from its name and its first `HEAD` bytes; None when it is no artefact."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    suffix = name.rpartition(".")[2].lower()
    return suffix if suffix in _SUFFIXES else None
