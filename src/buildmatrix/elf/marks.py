"""Byte sequences that prove that a library was linked in statically, under neutral names.

Each one is a string of the library's own implementation that its callers do not have. What a mark
means for a vendor stands in the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from buildmatrix.elf.model import Mark
from buildmatrix.elf.regions import Window

#: Name of a mark and its bytes, at most `regions.AFTER` of them. Long ones are searched for faster.
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
        "ur-adapters-variable": b"UR_ADAPTERS_FORCE_LOAD",
        "ocl-icd-variable": b"OCL_ICD_ASSUME_ICD_EXTENSION",
        "openmp-double-start": b"Initializing %1$s, but found %2$s already initialized.",
        "mkl-error-prefix": b"MKL ERROR: %s.",
        "onednn-version-line": b"oneDNN v%d.%d.%d (commit %s)",
    }
)


class MarkFinder:
    """Collects the first occurrence of each mark from the windows of one file."""

    def __init__(self, marks: Mapping[str, bytes] = MARKS) -> None:
        self._missing = dict(marks)
        self._found: list[Mark] = []

    def search(self, window: Window) -> None:
        """Adds the marks that begin in this window and were not found before."""
        for name, needle in tuple(self._missing.items()):
            at = window.data.find(needle, window.start, window.stop + len(needle) - 1)
            if at >= 0:
                self._found.append(Mark(name, window.offset + at))
                del self._missing[name]

    def marks(self) -> tuple[Mark, ...]:
        """What was found, in the order of the file."""
        return tuple(sorted(self._found, key=lambda mark: mark.offset))
