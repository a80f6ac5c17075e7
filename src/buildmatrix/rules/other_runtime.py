"""BM103: a distribution is for another toolkit line of the same backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from buildmatrix.catalogue.model import DistributionMatch
from buildmatrix.compat.runtimes import built_for, toolkit_line
from buildmatrix.rules.belonging import title
from buildmatrix.rules.declared import declaration, sized
from buildmatrix.rules.findings import finding
from buildmatrix.rules.fixes import line_fix
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import Present, Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Every distribution of this backend whose toolkit line is not the target's."""
    lined = [
        (present, match, line)
        for present, match in subject.matches
        if match.backend == subject.backend and (line := _line(present, match)) is not None
    ]
    # A target without a runtime has no line of its own: then most of its distributions decide.
    expected = toolkit_line(subject.target.runtime) or _most(line for _, _, line in lined)
    for present, match, line in lined:
        if line == expected or expected is None or match.vendor is None:
            continue
        name = title(subject.backend, subject.catalogue)
        yield finding(
            "BM103",
            subject,
            f"{sized(present)} is for {name} {line}, and this target is for {name} {expected}: "
            "libraries of two lines do not work together",
            severity="error" if match.weight == "strong" else "warning",
            vendor=match.vendor,
            owner=f"{present.name}=={present.version}",
            evidence=declaration(present, match, match.vendor),
            chain=subject.chain_to(present.name) or (str(present),),
            fix=line_fix(subject, present.name, present.version, expected),
        )


def _line(present: Present, match: DistributionMatch) -> str | None:
    if match.toolkit is not None:
        return match.toolkit
    return toolkit_line(built_for(present.version.partition("+")[2]) or "")


def _most(lines: Iterator[str]) -> str | None:
    """The line that occurs most often; of equally frequent ones the newest."""
    counted = Counter(lines)
    return max(counted, key=lambda line: (counted[line], int(line)), default=None)
