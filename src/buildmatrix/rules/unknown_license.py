"""BM609: the policy has lists of licenses, and a license cannot be matched with them.

The run is undecided as long as a finding of this rule is a warning
(`rules.severities.leaves_open`).
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.inventory.model import Distribution
from buildmatrix.phrases import listing
from buildmatrix.rules.findings import chain_to_file, finding
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.licenses import accepted, licenses
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.not_allowed import license_lists, redistribution_asked
from buildmatrix.rules.redistribution import unread
from buildmatrix.rules.subject import ImageSubject

#: Characters of what metadata says, in a message.
_SHOWN = 80


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and question: which license, and what it lets one pass on."""
    forbidden, allowed = license_lists(image)
    for item in image.inventory.distributions if forbidden or allowed else ():
        expressions = licenses(item)
        if expressions and accepted(expressions, allowed, forbidden) != "unknown":
            continue
        why = f"{_why(item, expressions)}, so no list of licenses under [policy] decides"
        yield _unknown(image, item, why, "")
    for item, terms in unread(image) if redistribution_asked(image) else ():
        why = f"its license is {terms}, and no data file says what that lets everybody pass on"
        yield _unknown(image, item, why, "redistribution")


def _unknown(image: ImageSubject, item: Distribution, why: str, identity: str) -> Finding:
    owner = item.owner
    return finding(
        "BM609",
        image,
        f"{item.name} {item.version}: {why}",
        owner=owner,
        path=item.path,
        chain=chain_to_file(image, owner, item.path),
        fix=Fix(
            "waive",
            "read its license, and accept it with a [[waive]]",
            accept("BM609", distribution=item.name),
        ),
        identity=identity,
    )


def _why(item: Distribution, expressions: tuple[str, ...]) -> str:
    if len(expressions) > 1:
        return f"its classifiers name {listing(expressions)}, and not whether all of them hold"
    if expressions and "*" in expressions[0]:
        return f"its metadata names no single license but {expressions[0]}"
    if expressions:
        return f"its license is {expressions[0][:_SHOWN]}"
    said = item.license_expression or item.license
    if said:
        return f"its metadata has no SPDX license but {said[:_SHOWN]!r}"
    return "its metadata names no license"
