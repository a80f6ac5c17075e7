"""Compare with an accepted earlier preflight, and apply waivers of checks.

Times and rates are compared as ratios; up to `TOLERANCE` passes. Rates of devices and times to the
first answer fail beyond it; times of the user's own commands are only reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.catalogue.model import matches
from buildmatrix.facts.files import read_at_most, write_changed
from buildmatrix.matrix.model import CheckWaiver, Rung, select_in_force
from buildmatrix.preflight.subject import Subject
from buildmatrix.reports import json_form
from buildmatrix.reports.preflight import (
    Check,
    Preflight,
    PreflightTarget,
    RungOutcome,
    RungState,
    Value,
)

# Waivers of checks (`[[waive-check]]`)


def apply_waivers(
    rung: str, checks: Sequence[Check], waivers: Iterable[CheckWaiver], today: date
) -> tuple[Check, ...]:
    """Mark failed checks covered by a waiver as `accepted`, or note since when it has expired.

    Undecided checks stay undecided: an unseen result cannot be accepted.
    """
    own = [waiver for waiver in waivers if waiver.rung == rung]
    return tuple(_apply_waiver(check, own, today) for check in checks)


def describe_accepted(checks: Iterable[Check]) -> str:
    """List the accepted failures briefly; empty for none."""
    names = [check.subject for check in checks if check.state == "accepted"]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"accepted: {shown}" if names else ""


def _apply_waiver(check: Check, waivers: Sequence[CheckWaiver], today: date) -> Check:
    covering = [waiver for waiver in waivers if matches(waiver.check, check.subject)]
    if check.state != "failed" or not covering:
        return check
    for waiver in select_in_force(covering, today):
        until = f"({waiver.owner}, until {waiver.expires.isoformat()})"
        return replace(check, state="accepted", message=f"{waiver.reason} {until}: {check.message}")
    last = max(covering, key=lambda waiver: waiver.expires)
    over = f"{last.owner} accepted it until {last.expires.isoformat()}, which has passed"
    return replace(check, message=f"{check.message} ({over})")


# Comparison


#: Ratio to the baseline that still passes.
TOLERANCE = 1.2
#: Seconds of variation between runs, for any time.
JITTER_S = 0.05
#: Suffixes of rates, for which more is better.
_RATES = ("gbps", "tflops")
#: Names of times, for which less is better.
_TIMES = ("p50_s", "p95_s", "p99_s")
#: Rungs on which a regression fails.
_FAILING: frozenset[Rung] = frozenset({"compute", "collective", "memory", "cold-start"})
#: File size limit.
_LARGEST = 64 << 20


class Expectations(Struct, frozen=True):
    """Earlier results of an image, or results from elsewhere."""

    baseline: PreflightTarget | None = None
    #: Check of the rung `batch` to the numbers computed by its command.
    results: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def read_expectations(
    subjects: Sequence[tuple[Subject, str | None]], baseline: Path | None, reference: Path | None
) -> tuple[Expectations, ...]:
    """Return the expectations for each image on its node class, from earlier preflights.

    Raises `UsageError` if a file is not a preflight, or is about something else.
    """
    old = read_preflight(baseline) if baseline else None
    other = read_preflight(reference) if reference else None
    expected = []
    for subject, node_class in subjects:
        same = find_counterpart(old, baseline, subject, node_class) if old and baseline else None
        numbers = collect_results(same) if same else {}
        if other and reference:
            numbers = read_references(other, reference, subject.target.id)
        expected.append(Expectations(same, numbers))
    return tuple(expected)


def read_preflight(path: Path) -> Preflight:
    """Read an earlier preflight (`--format json`). Raises `UsageError` for other files."""
    try:
        data = read_at_most(path, _LARGEST)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST:
        raise UsageError(
            f"{path} is not a preflight report: it is larger than {_LARGEST >> 20} MiB"
        )
    try:
        return json_form.parse(data, Preflight)
    except ValueError as error:
        raise UsageError(f"{path} is not a preflight report (`--format json`): {error}") from error


def find_counterpart(
    preflight: Preflight, path: Path, subject: Subject, node_class: str | None
) -> PreflightTarget:
    """Return an earlier preflight's results of the same target, on the same node class.

    An image outside of the specification is compared with any of its backend. Raises `UsageError`
    if there is none.
    """
    target = subject.target
    same = [item for item in preflight.targets if item.id == target.id]
    others = [item for item in preflight.targets if item.backend == target.backend]
    candidates = same or (others if subject.files is None else [])
    fitting = [
        item
        for item in candidates
        if item.backend == target.backend and item.node_class == node_class
    ]
    if len(fitting) == 1:
        return fitting[0]
    if len(fitting) > 1:
        raise UsageError(f"{path} has several images for {target.backend}, and none is {target.id}")
    for item in candidates:
        if item.backend != target.backend:
            raise UsageError(
                f"{path} is about {item.id} for {item.backend}, and this image is for "
                f"{target.backend}"
            )
        own, other = node_class or "no node class", item.node_class or "no node class"
        raise UsageError(f"{path} was taken on {other}, and this is {own}: they cannot be compared")
    raise UsageError(f"{path} has nothing about {target.id}")


def accept(preflight: Preflight, path: Path) -> None:
    """Write a preflight as the baseline of later ones.

    Raises `UndecidedError` if a rung did not pass, or the file cannot be written.
    """
    for target in preflight.targets:
        for rung in target.rungs:
            if rung.state in ("failed", "undecided"):
                raise UndecidedError(
                    f"{path} was not written: the rung `{rung.rung}` of {target.id} "
                    f"{'failed' if rung.state == 'failed' else 'is undecided'}"
                )
    write_changed(path, json_form.render(preflight).encode())


def read_references(preflight: Preflight, path: Path, id: str) -> Mapping[str, Mapping[str, float]]:
    """Return the numbers computed by the user's commands per check, on any machine.

    Raises `UsageError` if there are several images other than `id`, or no results.
    """
    targets = [target for target in preflight.targets if target.id == id] or preflight.targets
    if len(targets) != 1:
        raise UsageError(f"{path} has several images, and none is {id}")
    numbers = collect_results(targets[0])
    if not numbers:
        raise UsageError(f"{path} has no result of a command (a line BUILDMATRIX_RESULT)")
    return numbers


def collect_results(earlier: PreflightTarget) -> Mapping[str, Mapping[str, float]]:
    """Return the numbers computed by the user's commands per check."""
    return {
        check.subject: result
        for rung in earlier.rungs
        if rung.rung == "batch"
        for check in rung.checks
        if isinstance(result := check.values.get("result"), dict)
    }


def compare_rung(
    rung: Rung,
    checks: Sequence[Check],
    earlier: PreflightTarget,
    where: str = "here",
    nodes: int = 1,
) -> tuple[Check, ...]:
    """Compare a rung's checks with earlier ones; return a check for each comparison.

    With several nodes in an earlier preflight, the same node counts, else the first of the class.
    Results of `nodes` machines together are compared with those of as many.
    """
    alike = [outcome for outcome in earlier.rungs if (outcome.rung, outcome.nodes) == (rung, nodes)]
    alike.sort(key=lambda outcome: (outcome.where != where, outcome.state != "passed"))
    before = alike[0] if alike else RungOutcome(rung, "not-run")
    now = {check.subject: check for check in checks}
    return tuple(
        compared
        for old in before.checks
        if _measured_values(old)
        for compared in (_compare_check(rung, old, now.get(old.subject)),)
        if compared is not None
    )


def _compare_check(rung: Rung, old: Check, new: Check | None) -> Check | None:
    subject = f"{old.subject} against the baseline"
    if new is None:
        return Check(subject, "undecided", "the baseline has it, and it was not measured")
    if new.state == "failed":
        return None  # Already reported.
    gone = [name for name in _measured_values(old) if name not in new.values]
    ratios = dict(_compute_ratios(old, new))
    values: dict[str, Value] = {
        "ratios": {name: round(ratio, 3) for name, (ratio, _) in ratios.items()},
        "baseline": {
            name: float(value)
            for name in ratios
            if isinstance(value := old.values[name], int | float)
        },
    }
    beyond = [text for _, (ratio, text) in ratios.items() if ratio > TOLERANCE]
    if beyond:
        state: RungState = "failed" if rung in _FAILING else "passed"
        return Check(
            subject, state, f"{'; '.join(beyond)} (tolerance {TOLERANCE:g})", values=values
        )
    if gone and not ratios:
        return Check(subject, "undecided", f"{', '.join(gone)} was not measured", values=values)
    worst = max((ratio for ratio, _ in ratios.values()), default=1.0)
    message = f"at worst {worst:.2f} times (tolerance {TOLERANCE:g})"
    if gone:
        message += f"; {', '.join(gone)} was not measured: too few samples"
    return Check(subject, "passed", message, values=values)


def _measured_values(check: Check) -> list[str]:
    """Return the names of a check's comparable values."""
    return [
        name
        for name, value in check.values.items()
        if (name in _TIMES or name.endswith(_RATES))
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    ]


def _compute_ratios(old: Check, new: Check) -> Iterator[tuple[str, tuple[float, str]]]:
    """Yield each value with its ratio to the baseline, and a description."""
    for name in _measured_values(old):
        was, value = old.values[name], new.values.get(name)
        if not isinstance(was, int | float) or not isinstance(value, int | float) or value <= 0:
            continue
        if name in _TIMES:
            ratio = value / was if abs(value - was) > JITTER_S else 1.0
            label = name.removesuffix("_s")
            text = f"{label} {value:.2f} s is {ratio:.2f} times the {was:.2f} s of the baseline"
        else:
            ratio = was / value
            text = f"{name} {value:.4g} is 1/{ratio:.2f} of the {was:.4g} of the baseline"
        yield name, (ratio, text)
