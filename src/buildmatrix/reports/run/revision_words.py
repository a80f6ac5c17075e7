"""What a change brings (`audit --diff`), in words: the same for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from buildmatrix.phrases import count, size
from buildmatrix.reports.diff.model import Comparison, End
from buildmatrix.reports.diff.words import Block, blocks, signed
from buildmatrix.reports.run.groups import Group, groups
from buildmatrix.reports.run.model import Difference, TargetDifference
from buildmatrix.rules.model import AuditTotals, Finding
from buildmatrix.rules.repeats import without_repeats

#: A side of which nothing is told.
_LOCK = End("", "lock", "", (), None, None, None, 0)


@dataclass(frozen=True, slots=True)
class Alike:
    """Targets for which a change brings the same."""

    targets: tuple[str, ...]
    block: Block


def alike(difference: Difference) -> tuple[Alike, ...]:
    """What came, went and changed; targets with the same difference together."""
    groups: dict[Block, list[str]] = {}
    for one in difference.targets:
        for block in blocks(_comparison(one), every=False):
            groups.setdefault(block, []).append(one.id)
    return tuple(Alike(tuple(names), block) for block, names in groups.items())


def _comparison(it: TargetDifference) -> Comparison:
    """Without what the line of a target says already, and what only that target is called."""
    verdicts = tuple(replace(one, backend="") for one in it.verdicts or ())
    return Comparison(_LOCK, _LOCK, distributions=it.distributions, verdicts=verdicts)


def row(one: TargetDifference) -> tuple[str, ...]:
    """New and gone findings, distributions in, out and changed, bytes to download and installed."""
    kinds = [change.change for change in one.distributions.changes]
    return (
        str(len(_new(one))),
        str(len(_gone(one))),
        f"+{kinds.count('added')} -{kinds.count('removed')} ~{kinds.count('changed')}",
        _bytes(one, "download"),
        _bytes(one, "installed"),
    )


#: What `row` gives.
COLUMNS = ("new", "gone", "distributions", "download", "installed")


def _bytes(one: TargetDifference, what: str) -> str:
    if one.after is None:
        return ""
    before: int = getattr(one.before or AuditTotals(), what)
    after: int = getattr(one.after, what)
    return signed(after - before) if after != before else "the same"


def summary(difference: Difference) -> str:
    """One sentence about the whole."""
    new = {_about(f) for one in difference.targets for f in _new(one) if f.waived is None}
    lost = {_about(f) for one in difference.targets for f in _gone(one)}
    if not difference.targets:
        return "nothing to compare"
    changes = {
        (one.change, one.name, one.before, one.after)
        for target in difference.targets
        for one in target.distributions.changes
    }
    parts = [
        f"{count(len(new), 'new finding')}, {len(lost)} gone",
        count(len(changes), "distribution") + " in, out or changed" if changes else "",
        _largest(difference.targets),
    ]
    return "; ".join(part for part in parts if part)


def _about(one: Finding) -> tuple[str, str | None, str | None, str | None]:
    """What makes a finding the same on several targets."""
    return one.rule, one.distribution, one.path, one.vendor


def _new(target: TargetDifference) -> tuple[Finding, ...]:
    """Findings that came; one problem is one finding."""
    return without_repeats(target.findings.new) if target.findings is not None else ()


def _gone(target: TargetDifference) -> tuple[Finding, ...]:
    return without_repeats(target.findings.gone) if target.findings is not None else ()


def gone(difference: Difference) -> tuple[Group, ...]:
    """Findings that are gone."""
    findings = [found for one in difference.targets for found in _gone(one)]
    return groups(findings, [one.id for one in difference.targets])


def _largest(targets: Sequence[TargetDifference]) -> str:
    """How much more there is to download where it is most."""
    known = [one for one in targets if one.after is not None]
    if not known:
        return ""
    differences = {
        one.id: (one.after or AuditTotals()).download - (one.before or AuditTotals()).download
        for one in known
    }
    target, most = max(differences.items(), key=lambda item: abs(item[1]))
    if not most:
        return "as much to download as before"
    word = "more" if most > 0 else "less"
    where = f" on {target}" if len(known) > 1 else ""
    return f"{size(abs(most))} {word} to download{where}"
