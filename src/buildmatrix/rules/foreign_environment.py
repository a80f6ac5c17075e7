"""BM602: the image sets a variable of another backend, or one that the policy forbids."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.names import matches_any
from buildmatrix.phrases import listing
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.shipped import by_owner
from buildmatrix.rules.subject import ImageSubject

#: Variables that the `env` block of `base.Dockerfile.j2` sets in every image.
OF_TEMPLATES = ("PATH", "PYTHONUNBUFFERED", "VIRTUAL_ENV")


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per vendor, and one for all variables that the policy forbids."""
    foreign = (item for item in image.foreign if item.kind == "environment")
    for owned in by_owner(foreign):
        names = [item.detail.partition("=")[0] for item in owned.items]
        yield finding(
            "BM602",
            image,
            f"the image sets {owned.details}: variables of "
            f"{owned.title(image)}, which signal to container runtimes and "
            f"programs that this is not a {image.backend} image",
            vendor=owned.vendor,
            evidence=owned.items,
            fix=_fix(image, names),
        )
    globs = image.policy.forbid_env
    forbidden = [
        name
        for name in sorted(image.inventory.environment)
        if matches_any((*globs.get("*", ()), *globs.get(image.backend, ())), name)
    ]
    if forbidden:
        # Values are left out: what a policy forbids is often a credential.
        yield finding(
            "BM602",
            image,
            f"the image sets {listing(forbidden)}, which `forbid-env` under [policy] forbids",
            fix=_fix(image, forbidden),
        )


def _fix(image: ImageSubject, names: list[str]) -> Fix:
    ours = [name for name in names if name in OF_TEMPLATES]
    others = [name for name in names if name not in OF_TEMPLATES]
    advice = []
    if ours:
        advice.append(
            f"{listing(ours)}: the generated Dockerfile sets this; replace the `env` block in a "
            "template of your own (docs/templates.md), or allow it under [policy]"
        )
    if others:
        base = image.target.base.final
        present = f" ({base} is the present one)" if base else ""
        advice.append(
            f"take {listing(others)} out of `env`, or take a base image{present} that does not set "
            "it"
        )
    return Fix("base", "; ".join(advice))
