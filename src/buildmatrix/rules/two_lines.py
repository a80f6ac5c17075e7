"""BM109: distributions for two toolkit lines of this backend are in one lock.

BM103 says which of them are not for the target's line; this says that both are there, which no
choice of a base image mends.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.catalogue.runtimes import toolkit_line
from buildmatrix.phrases import listing
from buildmatrix.rules.belonging import title
from buildmatrix.rules.declared import declaration, finding_about
from buildmatrix.rules.fixes import line_fix
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import Present, Subject


def check(subject: Subject) -> Iterator[Finding]:
    """At most one finding, at the line that has fewer distributions or is not the target's."""
    lines: dict[str, list[tuple[Present, DistributionMatch]]] = {}
    for present, match in subject.matches:
        if match.backend == subject.backend and match.weight == "strong" and match.toolkit:
            lines.setdefault(match.toolkit, []).append((present, match))
    if len(lines) < 2:
        return
    expected = toolkit_line(subject.target.runtime)
    if expected not in lines:
        expected = max(lines, key=lambda line: (len(lines[line]), int(line)))
    odd = [item for line in sorted(lines) if line != expected for item in lines[line]]
    present, match = min(odd, key=lambda pair: (len(subject.chain_to(pair[0].name)), pair[0].name))
    name = title(subject.backend, subject.catalogue)
    yield finding_about(
        "BM109",
        subject,
        present,
        f"{name} {' and '.join(sorted(lines, key=int))} are both in this lock: "
        f"{listing(str(item) for item, _ in odd)} beside "
        f"{listing(str(item) for item, _ in lines[expected])} of line {expected}; one process "
        "cannot use both",
        vendor=match.vendor,
        evidence=tuple(_evidence(lines)),
        fix=line_fix(subject, present.name, present.version, expected),
    )


def _evidence(lines: dict[str, list[tuple[Present, DistributionMatch]]]) -> Iterator[Evidence]:
    for line in sorted(lines):
        for present, match in lines[line]:
            if match.vendor is not None:
                yield from declaration(present, match, match.vendor)
