"""What a change brings (`audit --diff`), in words: the same for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from buildmatrix.phrases import count, size
from buildmatrix.reports.diff.model import Comparison
from buildmatrix.reports.diff.words import Block, blocks, signed
from buildmatrix.reports.run.groups import Group, groups
from buildmatrix.reports.run.model import Difference, TargetDifference
from buildmatrix.rules.model import AuditTotals, Finding
from buildmatrix.rules.repeats import without_repeats


@dataclass(frozen=True, slots=True)
class Alike:
    """Targets for which a change brings the same."""

    targets: tuple[str, ...]
    block: Block


def alike(difference: Difference) -> tuple[Alike, ...]:
    """What came, went and changed; targets with the same difference together."""
    groups: dict[Block, list[str]] = {}
    for one in difference.targets:
        for block in blocks(_plain(one.comparison), every=False):
            groups.setdefault(block, []).append(one.target)
    return tuple(Alike(tuple(names), block) for block, names in groups.items())


def _plain(it: Comparison) -> Comparison:
    """Without what the line of a target says already, and what only that target is called."""
    return replace(
        it,
        before=replace(it.before, size=None),
        after=replace(it.after, size=None),
        verdicts=tuple(replace(one, backend="") for one in it.verdicts or ()),
    )


def row(one: TargetDifference) -> tuple[str, ...]:
    """New and gone findings, distributions in, out and changed, bytes to download and installed."""
    kinds = [change.change for change in one.comparison.distributions]
    return (
        str(len(_of_target(one, "added"))),
        str(len(_of_target(one, "removed"))),
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
    new = {_about(one) for one in _findings(difference, "added") if one.waived is None}
    lost = {_about(one) for one in _findings(difference, "removed")}
    if not difference.targets:
        return "nothing to compare"
    changes = {
        (one.change, one.name, one.before, one.after)
        for target in difference.targets
        for one in target.comparison.distributions
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


def _findings(difference: Difference, change: str) -> Iterator[Finding]:
    for target in difference.targets:
        yield from _of_target(target, change)


def _of_target(target: TargetDifference, change: str) -> tuple[Finding, ...]:
    """Findings that came or went; one problem is one finding."""
    changes = target.comparison.findings or ()
    return without_repeats(one.finding for one in changes if one.change == change)


def gone(difference: Difference) -> tuple[Group, ...]:
    """Findings that are gone."""
    return groups(_findings(difference, "removed"), [one.target for one in difference.targets])


def _largest(targets: Sequence[TargetDifference]) -> str:
    """How much more there is to download where it is most."""
    known = [one for one in targets if one.after is not None]
    if not known:
        return ""
    differences = {
        one.target: (one.after or AuditTotals()).download - (one.before or AuditTotals()).download
        for one in known
    }
    target, most = max(differences.items(), key=lambda item: abs(item[1]))
    if not most:
        return "as much to download as before"
    word = "more" if most > 0 else "less"
    where = f" on {target}" if len(known) > 1 else ""
    return f"{size(abs(most))} {word} to download{where}"
