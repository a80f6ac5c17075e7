"""How much memory a process and its children take together (Linux).

Neither the resident sizes of all of them nor the largest one is the answer: after fork(2) they
share pages until one of them writes. So pages without a file count by their share (PSS), which is
once for all that have them. Pages of files (the interpreter, libraries) count as if no other
program of the machine had them: those of the process that has most of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

#: Seconds between two looks. One takes less than a millisecond.
INTERVAL = 0.01


class Watch:
    """Looks at the process `pid` and those below it until the end of the `with` statement."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)
        #: Bytes at the worst moment, and processes at most.
        self.peak = 0
        self.processes = 0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(INTERVAL):
            sizes = [size for pid in below(self._pid) if (size := sizes_of(pid)) is not None]
            if sizes:
                shares = sum(one["Pss_Anon"] + one["Pss_Shmem"] for one in sizes)
                files = max(one["Rss"] - one["Anonymous"] for one in sizes)
                self.peak = max(self.peak, shares + files)
                self.processes = max(self.processes, len(sizes))


def below(pid: int) -> Iterator[int]:
    """`pid` and all processes below it."""
    yield pid
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from below(int(child))
    except OSError:
        return


def sizes_of(pid: int) -> dict[str, int] | None:
    """Bytes by the names of /proc/PID/smaps_rollup; None for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return {
        name: 1024 * int(size.split()[0]) for name, size in (one.split(":") for one in lines[1:])
    }
