"""Memory of a process with many threads, kept small."""

from __future__ import annotations

import ctypes

#: mallopt(3) of glibc.
_M_ARENA_MAX = -8


def share_one_heap() -> None:
    """Let all threads of this process take memory from one heap; before they begin.

    glibc gives each of them a heap of its own, and what one frees no other gets: a third of the
    memory of an audit. They wait for an index most of the time and hold Python's lock for the rest,
    so sharing costs no time. Other C libraries know no such heaps; nothing happens there.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
