"""How tests share a machine: in several processes, a file to each (`--dist loadfile`).

The tests of a file stay in one process, so what they share is made once. A file names the images
that it makes as no other file does. A costly variant of what another test covers is marked
`weekly`, and runs only with `BUILDMATRIX_WEEKLY=1`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal

import pytest
from xdist.scheduler import LoadFileScheduling

# A shell that runs the tests in the background has SIGINT ignored: nobody would see Ctrl-C then.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# readline, which pytest imports, sets both for processes that tests start, and not in `os.environ`.
with contextlib.suppress(ImportError):
    import readline  # noqa: F401
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
    os.unsetenv(_name)

# Tests start threads by the hundred and free data by the hundred megabytes. glibc would give each
# thread a heap, and keep what was freed: two heaps serve all, and a block of 1 MiB goes back.
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
    set_option(_M_ARENA_MAX, 2)
    set_option(_M_MMAP_THRESHOLD, 1 << 20)

#: Files that take a minute or more, the longest first: one that comes last keeps a single process
#: busy.
LONG = tuple(
    f"tests/integration/test_{name}.py"
    for name in (
        *("example_matrix", "docker_engine", "github_runner", "guide"),
        *("oci_engine_real", "oci_contents_real"),
        *("public_projects", "preflight_rungs", "two_daemons", "pages"),
        *("backends_real", "tutorials", "preflight_compute", "preflight_real", "fleet_faults"),
    )
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Give each process a file at a time, in the order of collection."""
    # By default, files with many tests come first.
    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave weekly tests to their day, and begin with the longest files."""
    if not os.environ.get("BUILDMATRIX_WEEKLY"):
        weekly = [item for item in items if item.get_closest_marker("weekly")]
        config.hook.pytest_deselected(items=weekly)
        items[:] = [item for item in items if item not in weekly]
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(LONG)))


def pytest_collection_finish() -> None:
    """Keep collected tests, which live to the end, out of each later search for garbage.

    Without them it is cheap, and takes place often enough to find what tests leave in cycles.
    """
    gc.collect()
    gc.freeze()
