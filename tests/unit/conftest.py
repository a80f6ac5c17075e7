"""What all unit tests start from."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator

import psutil
import pytest
from hypothesis import HealthCheck, settings

from buildmatrix.base import text

# A test depends neither on luck nor on what else the machine does; tests/fuzz looks for new inputs.
settings.register_profile(
    "unit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unit")


#: Packages that cost much time and memory to import: the tests that need them do so.
HEAVY = {
    "dask_kubernetes", "duckdb", "lief", "moto", "pandas", "playwright", "pyarrow", "s3fs",
    "securesystemslib", "sigstore",
}  # fmt: skip
#: Length that a parameter of a test may have: it stays in memory to the end of the run.
LARGEST_PARAMETER = 1 << 20


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Every process collects every file: one whose collection is expensive fails itself."""
    had = HEAVY & sys.modules.keys()
    report = yield
    faults = [f"imports {name} at module level" for name in HEAVY & sys.modules.keys() - had]
    for item in report.result or ():
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        faults += [
            f"holds a large parameter of {item.originalname}: {name}"
            for name, value in parameters.items()
            if isinstance(value, str | bytes) and len(value) > LARGEST_PARAMETER
        ]
    if faults:
        report.outcome, report.longrepr = (
            "failed",
            f"{collector.nodeid} {', '.join(sorted(faults))}",
        )
    return report


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_running() -> Iterator[None]:
    """A file of tests that leaves a process or a thread fails itself, and no file after it."""
    processes, threads = set(psutil.Process().children()), set(threading.enumerate())
    yield
    gc.collect()  # The data of its servers lie in cycles; less than 0.1 s, see tests/conftest.py.
    left = set(psutil.Process().children()) - processes
    # What is ending may need a while on a busy machine.
    assert not psutil.wait_procs(left, timeout=60)[1]
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), thread


@pytest.fixture
def no_hang() -> Iterator[None]:
    """End a test that does not end by itself: one of work without bounds, which takes hours.

    By processor time, as other processes must not matter, and far above what the test takes.
    """

    def fail(*_: object) -> None:
        pytest.fail("this used a minute of processor time")

    before = signal.signal(signal.SIGPROF, fail)
    signal.setitimer(signal.ITIMER_PROF, 60)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@pytest.fixture
def a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that some formats ask for, whatever the clock of this machine says."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")


@pytest.fixture(autouse=True)
def no_credentials_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one run of the tool was given is remembered in its process; a test is a run."""
    monkeypatch.setattr(text, "_remembered", {})


@pytest.fixture(autouse=True)
def no_settings_of_this_machines_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this machine's packages are is nothing that a test may depend on."""
    for name in os.environ:
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


@pytest.fixture(autouse=True)
def no_settings_of_this_machines_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what uv is told, nor a proxy, which a server on loopback is not behind."""
    for name in os.environ:
        if name.upper().endswith("_PROXY") or name.startswith("UV_"):
            monkeypatch.delenv(name)
