"""Statistics of repeated wall times."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.reports.preflight.model import Value

#: Samples required for each percentile: with fewer, it would equal the slowest one.
REQUIRED_SAMPLES = {50: 3, 95: 20, 99: 100}


def percentile(samples: Sequence[float], percent: int) -> float:
    """Return the smallest sample that `percent` of them do not exceed (nearest rank)."""
    rank = -(-len(samples) * percent // 100)
    return sorted(samples)[max(rank, 1) - 1]


def summarize(samples: Sequence[float], name: str = "") -> dict[str, Value]:
    """Return values for a check: `p50_s` and further percentiles with enough samples.

    `name` and a `_` precede each name.
    """
    before = f"{name}_" if name else ""
    values: dict[str, Value] = {
        f"{before}samples_s": [round(sample, 4) for sample in samples],
        f"{before}n": len(samples),
    }
    for percent, enough in REQUIRED_SAMPLES.items():
        if len(samples) >= enough:
            values[f"{before}p{percent}_s"] = round(percentile(samples, percent), 4)
    return values


def describe(samples: Sequence[float]) -> str:
    """Format as `p50 0.41 s of 5 (0.39 to 0.52 s)`, with the percentiles of `REQUIRED_SAMPLES`."""
    if not samples:
        return "no time was taken"
    said = [
        f"p{percent} {percentile(samples, percent):.2f} s"
        for percent, enough in REQUIRED_SAMPLES.items()
        if len(samples) >= enough
    ]
    if len(samples) == 1:
        return f"{samples[0]:.2f} s, once"
    span = f"{min(samples):.2f} to {max(samples):.2f} s"
    return f"{', '.join(said)} of {len(samples)} ({span})" if said else f"{span} of {len(samples)}"
