"""BM603: the files of the image are larger together than the policy allows."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import size
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import ImageSubject

_SHOWN = 3


def check(image: ImageSubject) -> Iterator[Finding]:
    """At most one finding, which names the largest distributions."""
    budgets = image.policy.max_size
    budget = budgets.get(image.backend, budgets.get("*"))
    total = image.inventory.stats.bytes_total
    if budget is None or total <= budget:
        return
    largest = sorted(image.inventory.distributions, key=lambda item: (-item.size, item.name))
    shown = ", ".join(f"{item.name} {size(item.size)}" for item in largest[:_SHOWN])
    yield finding(
        "BM603",
        image,
        f"the image holds {size(total)}, and `max-size` allows {size(budget)}"
        + (f"; the largest distributions are {shown}" if shown else ""),
        fix=Fix(
            "remove",
            f"remove what is not needed, or raise `max-size` under [policy] for {image.backend}",
        ),
    )
