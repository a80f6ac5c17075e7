"""Rung `batch`: repeated runs of the user's own commands, cold and warm.

A cold run has a container of its own. Warm runs share one container, so that later ones find the
compiled code, caches and files of the first.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence

from buildmatrix.commands.preflight.protocol import make_call, read_checks
from buildmatrix.commands.preflight.results import (
    TOLERANCE,
    UnreadableResult,
    describe_difference,
    parse_result,
)
from buildmatrix.commands.preflight.samples import describe, summarize
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.engines.text import shorten
from buildmatrix.reports.preflight.model import Check, Value
from buildmatrix.spec.model import Smoke

#: Seconds after which a command is not repeated again; the times so far count.
BUDGET_S = 300
#: Characters of a failed command's last line.
_SHOWN = 300

Result = dict[str, float] | None


def run_batch(
    commands: Sequence[Smoke],
    run: Run,
    repeat: int,
    references: Mapping[str, Mapping[str, float]],
    python: str = "python",
) -> tuple[Check, ...]:
    """Run each command `repeat` times cold, then warm, and compare its results.

    `references` has the results of commands elsewhere, by the names of their checks.
    """
    return tuple(
        check
        for smoke in commands
        for check in _run_command(smoke, run, repeat, references.get(f"{smoke.name} cold"), python)
    )


def _run_command(
    smoke: Smoke, run: Run, repeat: int, reference: Mapping[str, float] | None, python: str
) -> Iterator[Check]:
    samples: list[float] = []
    result: Result = None
    began = time.monotonic()
    while len(samples) < repeat and (not samples or time.monotonic() - began < BUDGET_S):
        start = time.monotonic()
        ended = run(smoke.command, smoke.timeout_s)
        seconds = time.monotonic() - start if ended.seconds is None else ended.seconds
        why = _describe_failure(ended, smoke.timeout_s)
        if why:
            where = f"run {len(samples) + 1} of {repeat} " if samples else ""
            yield Check(f"{smoke.name} cold", "failed", where + why, seconds, summarize(samples))
            return
        samples.append(seconds)
        try:
            result = parse_result(ended.output)
        except UnreadableResult as error:
            yield Check(f"{smoke.name} cold", "failed", str(error), seconds, summarize(samples))
            return
        if result is not None and reference and (off := describe_difference(result, reference)):
            values: dict[str, Value] = {**summarize(samples), "result": result}
            yield Check(f"{smoke.name} cold", "failed", off, seconds, values)
            return
    yield _report_cold(smoke, samples, result, reference)
    if repeat > 1:
        yield _run_warm(smoke, run, repeat, result, python)


def _report_cold(
    smoke: Smoke, samples: Sequence[float], result: Result, reference: Mapping[str, float] | None
) -> Check:
    values: dict[str, Value] = summarize(samples)
    said = describe(samples)
    if result is not None:
        values["result"] = result
    if reference and result is None:
        said += "; it printed no result to compare with the reference"
        return Check(f"{smoke.name} cold", "undecided", said, sum(samples), values)
    if reference:
        tolerance = (result or {}).get("tolerance", TOLERANCE)
        said += f"; its result is that of the reference (tolerance {tolerance:g})"
    elif result is not None:
        said += "; nothing to compare its result with"
    return Check(f"{smoke.name} cold", "passed", said, sum(samples), values)


def _run_warm(smoke: Smoke, run: Run, repeat: int, result: Result, python: str) -> Check:
    """Compare the first run in a container with the later ones."""
    name = f"{smoke.name} warm"
    bound = min(smoke.timeout_s * (repeat + 1), BUDGET_S + smoke.timeout_s)
    options = {"command": smoke.command, "times": repeat + 1, "seconds": smoke.timeout_s}
    probe = make_call("repeat", options, python)
    ended = run(probe.command, bound)
    seen = read_checks(ended.output, probe.mark)
    if not seen:
        failure = _describe_failure(ended, bound) or "no word of it"
        why = f"nothing repeats it in one container: {failure}"
        return Check(name, "not-run", why)
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
