"""The rung `batch`: the user's own commands, again and again, cold and warm.

Cold is a container of its own for every run. Warm is one container for all runs, where what the
first run compiled, cached or read from disk is there for the later ones.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence

from buildmatrix.commands.preflight.protocol import call, checks
from buildmatrix.commands.preflight.results import TOLERANCE, Unreadable, difference, result_of
from buildmatrix.commands.preflight.samples import phrase, summary
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.engines.text import shorten
from buildmatrix.reports.preflight.model import Check, Value
from buildmatrix.spec.model import Smoke

#: Seconds after which a command is not run once more: what was timed until then counts.
BUDGET_S = 300
#: Characters of a failed command's last words.
_SHOWN = 300

Result = dict[str, float] | None


def run_batch(
    commands: Sequence[Smoke],
    run: Run,
    repeat: int,
    references: Mapping[str, Mapping[str, float]],
    python: str = "python",
) -> tuple[Check, ...]:
    """Run each command `repeat` times cold, then as often warm, and compare what it computed.

    `references` has the results of commands elsewhere, by the names of their checks.
    """
    return tuple(
        check
        for smoke in commands
        for check in _command(smoke, run, repeat, references.get(f"{smoke.name} cold"), python)
    )


def _command(
    smoke: Smoke, run: Run, repeat: int, reference: Mapping[str, float] | None, python: str
) -> Iterator[Check]:
    samples: list[float] = []
    result: Result = None
    began = time.monotonic()
    while len(samples) < repeat and (not samples or time.monotonic() - began < BUDGET_S):
        start = time.monotonic()
        ended = run(smoke.command, smoke.timeout_s)
        seconds = time.monotonic() - start if ended.seconds is None else ended.seconds
        why = _failure(ended, smoke.timeout_s)
        if why:
            where = f"run {len(samples) + 1} of {repeat} " if samples else ""
            yield Check(f"{smoke.name} cold", "failed", where + why, seconds, summary(samples))
            return
        samples.append(seconds)
        try:
            result = result_of(ended.output)
        except Unreadable as error:
            yield Check(f"{smoke.name} cold", "failed", str(error), seconds, summary(samples))
            return
        if result is not None and reference and (off := difference(result, reference)):
            values: dict[str, Value] = {**summary(samples), "result": result}
            yield Check(f"{smoke.name} cold", "failed", off, seconds, values)
            return
    yield _cold(smoke, samples, result, reference)
    if repeat > 1:
        yield _warm(smoke, run, repeat, result, python)


def _cold(
    smoke: Smoke, samples: Sequence[float], result: Result, reference: Mapping[str, float] | None
) -> Check:
    values: dict[str, Value] = summary(samples)
    said = phrase(samples)
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


def _warm(smoke: Smoke, run: Run, repeat: int, result: Result, python: str) -> Check:
    """The first run in a container against the later ones."""
    name = f"{smoke.name} warm"
    bound = min(smoke.timeout_s * (repeat + 1), BUDGET_S + smoke.timeout_s)
    options = {"command": smoke.command, "times": repeat + 1, "seconds": smoke.timeout_s}
    probe = call("repeat", options, python)
    ended = run(probe.command, bound)
    seen = checks(ended.output, probe.mark)
    if not seen:
        why = f"nothing repeats it in one container: {_failure(ended, bound) or 'no word of it'}"
        return Check(name, "not-run", why)
    times = [check.seconds for check in seen if check.state == "passed" and check.seconds]
    failed = next((check for check in seen if check.state != "passed"), None)
    if failed is not None and len(times) < 2:
        # It works in a container of its own, which is all that was asked of it.
        return Check(name, "not-run", f"it cannot be repeated in one container: {failed.message}")
    if failed is not None:
        why = f"run {len(times) + 1} in one container failed: {failed.message}"
        return Check(name, "failed", why, sum(times), summary(times[1:]))
    if len(times) < 2:
        return Check(name, "undecided", f"it did not end twice within {bound:g} s", sum(times))
    first, *later = times
    values: dict[str, Value] = {"first_s": round(first, 4), **summary(later)}
    try:
        results = [result_of(str(check.values.get("result", ""))) for check in seen]
    except Unreadable as error:
        return Check(name, "failed", str(error), sum(times), values)
    for number, again in enumerate(results, 1):
        if result is not None and (off := difference(again or {}, result)):
            why = f"run {number} in one container has another result than a cold one: {off}"
            return Check(name, "failed", why, sum(times), values)
    said = f"first {first:.2f} s, later {phrase(later)}"
    return Check(name, "passed", said, sum(times), values)


def _failure(ended: RunResult, timeout_s: float) -> str:
    """How a command failed; empty where it did not."""
    if ended.timed_out:
        return f"did not end within {timeout_s:g} s"
    if ended.exit_code == 0:
        return ""
    lines = [line for line in ended.output.splitlines() if line.strip()]
    last = f": {shorten(lines[-1], _SHOWN)}" if lines else ""
    return f"failed with exit code {ended.exit_code}{_signal(ended.exit_code)}{last}"


def _signal(code: int) -> str:
    """The signal that a shell's exit code speaks of (128 and its number)."""
    try:
        return f" ({signal.Signals(code - 128).name})" if code > 128 else ""
    except ValueError:
        return ""
