"""Limits that a worker sets on itself before it reads hostile bytes with native code."""

from __future__ import annotations

import resource


def limit_process(*, memory: int, seconds: int, file_size: int | None = None) -> None:
    """Bound this process: bytes of address space, seconds of processor time, bytes of a file.

    It writes no core dump. A stricter limit that the system sets already stays.
    """
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: file_size,
    }
    for kind, limit in limits.items():
        if limit is not None:
            hard = resource.getrlimit(kind)[1]
            bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(kind, (bound, bound))
