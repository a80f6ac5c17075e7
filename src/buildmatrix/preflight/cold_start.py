"""Rung `cold-start`: time from the start of a container to the first answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from statistics import median

from msgspec import Struct

from buildmatrix.base.text import listing, size
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.engines.model import Run
from buildmatrix.preflight.batch import describe, summarize
from buildmatrix.preflight.machine import MachineFiles
from buildmatrix.preflight.protocol import (
    call_probe,
    list_frameworks,
    make_missing_checks,
    run_probe,
)
from buildmatrix.reports.preflight import Check, Value

#: Seconds for one container; after which a framework is not started again; for all starts within
#: one container.
EACH_S, BUDGET_S, WITHIN_S = 300, 600, 1_800
#: Limitation of times from a pod.
NOT_FROM_WITHIN = (
    "what a container takes to start cannot be seen from within: `preflight` on the machine "
    "measures it"
)
#: A first call is reported if it is slower than the next one by this factor, and takes this many
#: seconds.
SLOWER, WORTH_S = 10, 0.5
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class ColdStart(Struct, frozen=True):
    """One cold start, in seconds."""

    #: Start of the container with its interpreter; None if it was already running.
    container: float | None
    importing: float
    first_call: float
    later_call: float

    @property
    def answer(self) -> float:
        """Time from the start of the container, or of the process in it, to the first answer."""
        return (self.container or 0.0) + self.importing + self.first_call


class KernelCaches(Struct, frozen=True):
    """Locations of compile caches: patterns of folders, and variables with folders."""

    folders: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def holding(self, folder: str) -> str | None:
        """Return the pattern of the cache that `folder` is or is part of."""
        for pattern in self.folders:
            anywhere = pattern if pattern.startswith("/") else f"*/{pattern}"
            if fnmatchcase(folder, anywhere) or fnmatchcase(folder, f"{anywhere}/*"):
                return pattern
        return None


def find_kernel_caches(catalogue: Catalogue) -> KernelCaches:
    """Return the kernel caches in the catalogue."""
    entries = [cache.entry for cache in catalogue.caches if cache.entry.kind == "kernels"]
    return KernelCaches(
        tuple(folder for entry in entries for folder in entry.folders),
        tuple(variable for entry in entries for variable in entry.variables),
    )


def run_cold_start(
    run: Run,
    repeat: int,
    backend: str,
    catalogue: Catalogue,
    late: Sequence[str] = (),
    *,
    is_within: bool = False,
) -> tuple[Check, ...]:
    """Start each framework `repeat` times on a device, each time in a new container.

    `late` lists code that is compiled at the first start, according to the scan. With `is_within`,
    all run in one container, as in a pod: each in a process with an empty home. The start of the
    container is then not included, so the times have names of their own.
    """
    caches = find_kernel_caches(catalogue)
    options: dict[str, object] = {
        "frameworks": list_frameworks(backend, catalogue),
        "variables": caches.variables,
    }
    if is_within:
        options |= {"times": repeat, "seconds": EACH_S, "budget": BUDGET_S}
    limit = WITHIN_S if is_within else EACH_S
    seen, names = run_probe(run, "cold_start", options, limit, "frameworks")
    if names is None:
        return seen
    if not is_within:
        return tuple(
            _start_framework(name, run, repeat, {**options, "start": name}, caches, late)
            for name in names
        )
    checks: list[Check] = []
    for name in names:
        if answers := [check for check in seen if check.subject == name]:
            starts = [_parse_start(answer) for answer in answers if answer.state == "passed"]
            subject = f"{name} in a running container"
            checks.append(_make_check(subject, answers[-1], starts, caches, late))
    return (*checks, *make_missing_checks(names, seen))


def _start_framework(
    name: str,
    run: Run,
    repeat: int,
    options: Mapping[str, object],
    caches: KernelCaches,
    late: Sequence[str],
) -> Check:
    starts: list[ColdStart] = []
    latest = Check(name, "undecided")
    began = time.monotonic()
    while len(starts) < repeat and (not starts or time.monotonic() - began < BUDGET_S):
        start = time.monotonic()
        seen, ended = call_probe(run, "cold_start", options, EACH_S)
        end = time.monotonic()
        if not seen:
            lines = [line for line in ended.output.splitlines() if line.strip()]
            why = (
                f"no answer within {EACH_S} s"
                if ended.timed_out
                else f"exit code {ended.exit_code} and no answer: {' '.join(lines[-1:])[:300]}"
            )
            latest = Check(name, "failed", f"start {len(starts) + 1}: {why}")
            break
        latest = seen[0]
        if latest.state != "passed":
            break
        starts.append(_parse_start(latest, (start, end)))
    return _make_check(name, latest, starts, caches, late, time.monotonic() - began)


def _make_check(
    subject: str,
    latest: Check,
    starts: Sequence[ColdStart],
    caches: KernelCaches,
    late: Sequence[str],
    seconds: float | None = None,
) -> Check:
    """Return the check for `starts` that gave an answer; `latest` is that of the last start."""
    values = _summarize_starts(starts)
    if latest.state != "passed":
        return Check(subject, latest.state, latest.message, seconds, values)
    device = latest.values.get("device")
    values["device"] = device
    compiled = _sum_compiled(latest, caches)
    if compiled:
        values["kernel_caches"] = {where: float(bytes) for where, bytes in compiled.items()}
    said = "; ".join(_describe_starts(starts, str(device), compiled, late))
    return Check(subject, "passed", said, seconds, values)


def _parse_start(check: Check, span: tuple[float, float] | None = None) -> ColdStart:
    """Return the parts of one start; `span` is its container's, by this machine's monotonic clock.

    Without a span, only the start of the process is known.
    """
    seconds = {
        name: float(value)
        for name, value in check.values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    importing, first, later = (
        seconds.get(name, 0.0) for name in ("import_s", "first_call_s", "later_call_s")
    )
    if span is None:
        return ColdStart(None, importing, first, later)
    began, ended = span
    started, answered = seconds.get("started", 0.0), seconds.get("answered", 0.0)
    # A container on this kernel shares the clock. Elsewhere, the time includes the end of the
    # container and the polling for it.
    here = check.values.get("boot_id") == _read_boot_id() and began <= started <= answered <= ended
    container = answered - began if here else ended - began - later
    return ColdStart(max(container - importing - first, 0.0), importing, first, later)


def _read_boot_id() -> str:
    return (MachineFiles().text(_BOOT_ID) or "").strip()


def _summarize_starts(starts: Sequence[ColdStart]) -> dict[str, Value]:
    if not starts:
        return {}
    containers = [start.container for start in starts if start.container is not None]
    return {
        **summarize([start.answer for start in starts]),
        **({"container_s": round(median(containers), 4)} if containers else {}),
        "import_s": round(median(start.importing for start in starts), 4),
        "first_call_s": round(median(start.first_call for start in starts), 4),
        "later_call_s": round(median(start.later_call for start in starts), 6),
    }


def _sum_compiled(check: Check, caches: KernelCaches) -> Mapping[str, float]:
    """Map kernel caches to the bytes written into them."""
    written = check.values.get("written")
    compiled: dict[str, float] = {}
    for folder, bytes in (written if isinstance(written, dict) else {}).items():
        cache = caches.holding(folder)
        if cache is not None:
            compiled[cache] = compiled.get(cache, 0) + bytes
    return compiled


def _describe_starts(
    starts: Sequence[ColdStart], device: str, compiled: Mapping[str, float], late: Sequence[str]
) -> Iterator[str]:
    yield f"{describe([start.answer for start in starts])} on {device}"
    importing, first, later = (
        median(getattr(start, part) for start in starts)
        for part in ("importing", "first_call", "later_call")
    )
    containers = [start.container for start in starts if start.container is not None]
    before = f"container {median(containers):.2f} s, " if containers else ""
    yield f"{before}import {importing:.2f} s, first call {first:.2f} s"
    if first > WORTH_S and first > SLOWER * later:
        yield f"a second call takes {later:.3f} s"
    if compiled:
        sizes = [f"{size(int(bytes))} in {cache}" for cache, bytes in compiled.items()]
        yield f"the first call compiled kernels ({listing(sizes)}), as in every new container"
    if late:
        yield listing(late)
