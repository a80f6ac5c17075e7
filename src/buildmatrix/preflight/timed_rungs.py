"""Rungs that time repeated runs: `batch` and `cold-start`.

`batch` runs the user's own commands, cold and warm. A cold run has a container of its own. Warm
runs share one container, so that later ones find the compiled code, caches and files of the first.
`cold-start` takes the time from the start of a container to the first answer of a framework.
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from statistics import median

from msgspec import Struct

from buildmatrix.base.text import listing, size
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.engines.process import shorten
from buildmatrix.matrix.model import Smoke
from buildmatrix.preflight.machine import MachineFiles
from buildmatrix.preflight.protocol import (
    call_probe,
    list_frameworks,
    make_missing_checks,
    run_probe,
)
from buildmatrix.reports.preflight import Check, CheckState, Value

# Statistics of repeated wall times


#: Samples required for each percentile: with fewer, it would equal the slowest one.
REQUIRED_SAMPLES = {50: 3, 95: 20, 99: 100}


def percentile(samples: Sequence[float], percent: int) -> float:
    """Return the smallest sample that `percent` of them do not exceed (nearest rank)."""
    rank = -(-len(samples) * percent // 100)
    return sorted(samples)[max(rank, 1) - 1]


def summarize(samples: Sequence[float]) -> dict[str, Value]:
    """Return values for a check: `p50_s` and further percentiles with enough samples."""
    values: dict[str, Value] = {
        "samples_s": [round(sample, 4) for sample in samples],
        "n": len(samples),
    }
    for percent, enough in REQUIRED_SAMPLES.items():
        if len(samples) >= enough:
            values[f"p{percent}_s"] = round(percentile(samples, percent), 4)
    return values


def describe(samples: Sequence[float]) -> str:
    """Format as `p50 0.41 s of 5 (0.39 to 0.52 s)`, with the percentiles of `REQUIRED_SAMPLES`."""
    said = [
        f"p{percent} {percentile(samples, percent):.2f} s"
        for percent, enough in REQUIRED_SAMPLES.items()
        if len(samples) >= enough
    ]
    if len(samples) == 1:
        return f"{samples[0]:.2f} s, once"
    span = f"{min(samples):.2f} to {max(samples):.2f} s"
    return f"{', '.join(said)} of {len(samples)} ({span})" if said else f"{span} of {len(samples)}"


# Results compared with another machine's.
#
# The numbers of a line `BUILDMATRIX_RESULT {"loss": 0.25, "logits": [1.5, -0.5]}` are compared with
# those of a reference: a run on a CPU, or an accepted one. `tolerance` among them is the relative
# tolerance of the command.


#: The mark at the start of the line; the last such line counts.
MARK = "BUILDMATRIX_RESULT "
#: Relative difference of equal numbers, unless the command has its own.
TOLERANCE = 1e-3
#: Tolerance for numbers near zero, as a share of the largest number of the result.
ZERO_TOLERANCE = 1e-6
#: Numbers of one result, and characters of its line.
MOST, LONGEST = 256, 64 << 10


class UnreadableResult(Exception):
    """The line is not a result; the message says why."""


def parse_result(output: str) -> dict[str, float] | None:
    """Return the numbers of the last marked line; None without any. Raises `UnreadableResult`."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        return None
    text = lines[-1].removeprefix(MARK)
    if len(text) > LONGEST:
        raise UnreadableResult(f"its result has {len(text)} characters, and {LONGEST} are read")
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableResult(f"its result is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise UnreadableResult("its result is not a JSON object")
    numbers: dict[str, float] = {}
    for name, value in read.items():
        items = enumerate(value) if isinstance(value, list) else ((None, value),)
        for index, item in items:
            key = name[:100] if index is None else f"{name[:100]}[{index}]"
            if isinstance(item, bool) or not isinstance(item, int | float):
                raise UnreadableResult(f"`{key}` of its result is not a number")
            try:
                number = float(item)
            except OverflowError:
                number = math.inf
            if not math.isfinite(number):
                raise UnreadableResult(f"`{key}` of its result is not finite")
            numbers[key] = number
    if len(numbers) > MOST:
        raise UnreadableResult(f"its result has {len(numbers)} numbers, and {MOST} are compared")
    return numbers


def describe_difference(result: Mapping[str, float], reference: Mapping[str, float]) -> str:
    """Describe the largest difference beyond the tolerance; empty for none."""
    tolerance = result.get("tolerance", reference.get("tolerance", TOLERANCE))
    names = [name for name in {**reference, **result} if name != "tolerance"]
    largest = max((abs(reference.get(name, 0.0)) for name in names), default=0.0)
    worst, said = 0.0, ""
    for name in names:
        if name not in result or name not in reference:
            missing = "the reference" if name in result else "the result"
            return f"`{name}` is not in {missing}"
        own, other = result[name], reference[name]
        off = abs(own - other)
        scale = max(abs(own), abs(other))
        if off > tolerance * scale and off > ZERO_TOLERANCE * largest and off / scale > worst:
            worst = off / scale
            said = f"{name} is {own:.6g}, not {other:.6g}"
    return f"{said} (tolerance {tolerance:g})" if said else ""


# Rung `batch`


#: Seconds after which a command is not repeated again; the times so far count.
BATCH_BUDGET_S = 300
#: Characters of a failed command's last line.
_SHOWN = 300

Result = dict[str, float] | None


def run_batch(
    commands: Sequence[Smoke], run: Run, repeat: int, references: Mapping[str, Mapping[str, float]]
) -> tuple[Check, ...]:
    """Run each command `repeat` times cold, then warm, and compare its results.

    `references` has the results of commands elsewhere, by the names of their checks.
    """
    return tuple(
        check
        for smoke in commands
        for check in _run_command(smoke, run, repeat, references.get(f"{smoke.name} cold"))
    )


def _run_command(
    smoke: Smoke, run: Run, repeat: int, reference: Mapping[str, float] | None
) -> Iterator[Check]:
    name = f"{smoke.name} cold"
    samples: list[float] = []
    result: Result = None
    began = time.monotonic()
    while len(samples) < repeat and (not samples or time.monotonic() - began < BATCH_BUDGET_S):
        start = time.monotonic()
        ended = run(smoke.command, smoke.timeout_s)
        seconds = time.monotonic() - start if ended.seconds is None else ended.seconds
        why = _describe_failure(ended, smoke.timeout_s)
        if why:
            where = f"run {len(samples) + 1} of {repeat} " if samples else ""
            yield Check(name, "failed", where + why, seconds, summarize(samples))
            return
        samples.append(seconds)
        try:
            result = parse_result(ended.output)
        except UnreadableResult as error:
            yield Check(name, "failed", str(error), seconds, summarize(samples))
            return
        if result is not None and reference and (off := describe_difference(result, reference)):
            yield Check(name, "failed", off, seconds, {**summarize(samples), "result": result})
            return
    values, said = summarize(samples), describe(samples)
    state: CheckState = "passed"
    if result is not None:
        values["result"] = result
        tolerance = result.get("tolerance", TOLERANCE)
        said += (
            f"; its result is that of the reference (tolerance {tolerance:g})"
            if reference
            else "; nothing to compare its result with"
        )
    elif reference:
        said += "; it printed no result to compare with the reference"
        state = "undecided"
    yield Check(name, state, said, sum(samples), values)
    if repeat > 1:
        yield _run_warm(smoke, run, repeat, result)


def _run_warm(smoke: Smoke, run: Run, repeat: int, result: Result) -> Check:
    """Compare the first run in a container with the later ones."""
    name = f"{smoke.name} warm"
    bound = min(smoke.timeout_s * (repeat + 1), BATCH_BUDGET_S + smoke.timeout_s)
    options = {"command": smoke.command, "times": repeat + 1, "seconds": smoke.timeout_s}
    seen, ended = call_probe(run, "bounded", options, bound)
    if not seen:
        failure = _describe_failure(ended, bound) or "no word of it"
        return Check(name, "not-run", f"nothing repeats it in one container: {failure}")
    times = [check.seconds for check in seen if check.state == "passed" and check.seconds]
    failed = next((check for check in seen if check.state != "passed"), None)
    if failed is not None and len(times) < 2:
        # It works in a container of its own, which is all that it must do.
        return Check(name, "not-run", f"it cannot be repeated in one container: {failed.message}")
    if failed is not None:
        why = f"run {len(times) + 1} in one container failed: {failed.message}"
        return Check(name, "failed", why, sum(times), summarize(times[1:]))
    if len(times) < 2:
        return Check(name, "undecided", f"it did not end twice within {bound:g} s", sum(times))
    first, *later = times
    values: dict[str, Value] = {"first_s": round(first, 4), **summarize(later)}
    try:
        results = [parse_result(str(check.values.get("result", ""))) for check in seen]
    except UnreadableResult as error:
        return Check(name, "failed", str(error), sum(times), values)
    for number, again in enumerate(results, 1):
        if result is not None and (off := describe_difference(again or {}, result)):
            why = f"run {number} in one container has another result than a cold one: {off}"
            return Check(name, "failed", why, sum(times), values)
    said = f"first {first:.2f} s, later {describe(later)}"
    return Check(name, "passed", said, sum(times), values)


def _describe_failure(ended: RunResult, timeout_s: float) -> str:
    """Describe the failure of a command; empty if it succeeded."""
    if ended.timed_out:
        return f"did not end within {timeout_s:g} s"
    if ended.exit_code == 0:
        return ""
    lines = [line for line in ended.output.splitlines() if line.strip()]
    last = f": {shorten(lines[-1], _SHOWN)}" if lines else ""
    return f"failed with exit code {ended.exit_code}{_describe_signal(ended.exit_code)}{last}"


def _describe_signal(code: int) -> str:
    """Return the signal of a shell's exit code (128 and its number)."""
    try:
        return f" ({signal.Signals(code - 128).name})" if code > 128 else ""
    except ValueError:
        return ""


# Rung `cold-start`


#: Seconds: for one container; before the last start of a framework; for all starts in a container.
START_EACH_S, START_BUDGET_S, START_WITHIN_S = 300, 600, 1_800
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
        options |= {"times": repeat, "seconds": START_EACH_S, "budget": START_BUDGET_S}
    limit = START_WITHIN_S if is_within else START_EACH_S
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
    while len(starts) < repeat and (not starts or time.monotonic() - began < START_BUDGET_S):
        start = time.monotonic()
        seen, ended = call_probe(run, "cold_start", options, START_EACH_S)
        end = time.monotonic()
        if not seen:
            lines = [line for line in ended.output.splitlines() if line.strip()]
            why = (
                f"no answer within {START_EACH_S} s"
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
