"""BM603: a target is larger than the policy allows: its files, wheels, layers, foreign bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from buildmatrix.phrases import count, size
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.rules.wheels import Wheels

_SHOWN = 3


def check(image: ImageSubject) -> Iterator[Finding]:
    """At most one finding per budget. Wheels have no root file system and no layers."""
    policy, target = image.policy, image.target
    foreign = sum(item.foreign_bytes for item in image.verdicts.values() if item.verdict != "ok")
    if isinstance(image, Wheels):
        download = sum(present.size or 0 for present in image.present)
        budget = policy.budget(policy.max_download, target)
        if budget is not None and download > budget:
            largest = _largest((item.size or 0, item.name) for item in image.present)
            message = f"the wheels have {size(download)} to download"
            yield _over(image, "max-download", message, size(budget), largest)
    else:
        total = image.inventory.stats.bytes_total
        budget = policy.budget(policy.max_size, target)
        if budget is not None and total > budget:
            largest = _largest((item.size, item.name) for item in image.inventory.distributions)
            yield _over(image, "max-size", f"the image holds {size(total)}", size(budget), largest)
        layers = len(image.inventory.layers)
        budget = policy.budget(policy.max_layers, target)
        if budget is not None and layers > budget:
            yield _over(
                image, "max-layers", f"the image has {count(layers, 'layer')}", str(budget), ""
            )
    budget = policy.budget(policy.max_foreign, target)
    if budget is not None and foreign > budget:
        largest = _largest((item.foreign_bytes, item.name) for item in image.verdicts.values())
        message = f"{image.noun} brings {size(foreign)} of other backends"
        yield _over(image, "max-foreign", message, size(budget), largest)


def _over(image: ImageSubject, key: str, message: str, budget: str, largest: str) -> Finding:
    return finding(
        "BM603",
        image,
        f"{message}, and `{key}` allows {budget}{largest}",
        fix=Fix(
            "remove",
            f"remove what is not needed, or raise `{key}` under [policy] for {image.backend}",
        ),
        # The first budget that there was keeps its fingerprint.
        identity="" if key == "max-size" else key,
    )


def _largest(sizes: Iterable[tuple[int, str]]) -> str:
    largest = sorted(sizes, key=lambda item: (-item[0], item[1]))[:_SHOWN]
    shown = ", ".join(f"{name} {size(number)}" for number, name in largest if number)
    return f"; the largest distributions are {shown}" if shown else ""
