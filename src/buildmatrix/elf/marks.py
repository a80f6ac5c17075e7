"""Byte sequences that prove that a library was linked in statically, under neutral names.

Each one is a string of the library's own implementation that its callers do not have. What a mark
means for a vendor stands in the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from buildmatrix.elf.model import Mark
from buildmatrix.elf.regions import Window
from buildmatrix.elf.sieve import Sieve

#: Name of a mark and its bytes, at most `regions.AFTER` of them.
MARKS: Mapping[str, bytes] = MappingProxyType(
    {
        "cudart-error-string": b"CUDA driver version is insufficient for CUDA runtime version",
        "cudart-shared-memory": b"/cudart.shm.",
        "cublaslt-log-variable": b"CUBLASLT_LOG_MASK",
        "cusparse-error-string": b"Blocked Ell SpMM supports only GPU architectures",
        "cufft-variable": b"CUFFT_DISABLE_CONTIGUOUS_SUBBATCHING",
        # A fork for other hardware begins with another name.
        "nccl-version-line": b"\0NCCL version 2.",
        "nvrtc-error-prefix": b"nvrtc: error: failed with an internal error",
        "nvjitlink-version-hint": b"may need newer version of nvJitLink library",
        "hip-error-string": b"no ROCm-capable device is detected",
        "sycl-cache-variable": b"SYCL_CACHE_DISABLE_PERSISTENT",
        # UR_ADAPTERS_FORCE_LOAD is also in the adapters that the loader loads.
        "ur-loader-variable": b"UR_ADAPTERS_SEARCH_PATH",
        # Two loaders of different origin; OCL_ICD_VENDORS, which both have, is set by callers too.
        "ocl-icd-variable": b"OCL_ICD_ASSUME_ICD_EXTENSION",
        "khronos-icd-variable": b"OCL_ICD_FILENAMES",
        "openmp-double-start": b"Initializing %1$s, but found %2$s already initialized.",
        "mkl-error-prefix": b"MKL ERROR: %s.",
        "mkl-verbose-warning": b"MKL_VERBOSE WARNING: %s",
        "mkl-verbose-end": b"MKL_VERBOSE END %s()",
        "onednn-version-line": b"oneDNN v%d.%d.%d (commit %s)",
    }
)


_NAMES = {needle: name for name, needle in MARKS.items()}
_SIEVE = Sieve(_NAMES, anchors=b".CL")


class MarkFinder:
    """Collects the first occurrence of each mark from the windows of one file, in file order."""

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}

    def search(self, window: Window) -> None:
        """Adds the marks that begin in this window and were not found before."""
        for begin, needle in _SIEVE.hits(window.data, window.start, window.stop):
            self.add(_NAMES[needle], window.offset + begin)

    def add(self, name: str, offset: int) -> None:
        """Adds a mark that was found at `offset`."""
        self._marks.setdefault(name, Mark(name, offset))

    def __contains__(self, name: str) -> bool:
        """Whether a mark was found."""
        return name in self._marks

    def marks(self) -> tuple[Mark, ...]:
        """What was found, in the order of the file."""
        return tuple(sorted(self._marks.values(), key=lambda mark: mark.offset))
