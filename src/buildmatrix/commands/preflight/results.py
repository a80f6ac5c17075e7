"""Comparison of a user command's results with those of another machine.

The numbers of a line `BUILDMATRIX_RESULT {"loss": 0.25, "logits": [1.5, -0.5]}` are compared with
those of a reference: a run on a CPU, or an accepted one. `tolerance` among them is the relative
tolerance of this command.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

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
        raise UnreadableResult(f"its result is no JSON: {error}") from error
    if not isinstance(read, dict):
        raise UnreadableResult("its result is no JSON object")
    numbers: dict[str, float] = {}
    for name, value in read.items():
        items = enumerate(value) if isinstance(value, list) else ((None, value),)
        for index, item in items:
            key = name[:100] if index is None else f"{name[:100]}[{index}]"
            if isinstance(item, bool) or not isinstance(item, int | float):
                raise UnreadableResult(f"`{key}` of its result is no number")
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
