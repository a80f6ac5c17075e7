"""Findings with one cause and one fix, grouped over targets, and the fixes in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from buildmatrix.base.text import listing, size
from buildmatrix.judge.findings import fingerprint
from buildmatrix.judge.model import SEVERITY_RANK, Finding, Fix, Verdict
from buildmatrix.judge.registry import rule_of
from buildmatrix.reports.run import Report
from buildmatrix.reports.sections import Item, signed_size

# Fixes in words


def fix_text(fix: Fix, *, audited: bool) -> str:
    """Return a fix in words, with the result of its trial and its savings."""
    trial, saves = fix.tried, ""
    if trial is not None and trial.works:
        saves = savings_text(trial.saved_download, trial.saved_installed)
    return advice(fix, audited=audited, saves=saves)


def advice(fix: Fix, *, audited: bool, saves: str = "") -> str:
    """Return a fix in words, without its savings, which differ between targets."""
    trial = fix.tried
    if trial is None:
        state = "fix (not tried)" if audited and fix.changes else "fix"
    elif trial.works is None:
        state = "fix, could not be tried"
    else:
        state = "fix, tried" if trial.works else "tried, and it does not work"
    outcome = trial.outcome if trial is not None else ""
    return "; ".join(part for part in (f"{state}: {fix.text}", saves, outcome) if part)


def savings_text(download: int, installed: int) -> str:
    """`it saves 352.1 MB to download and 500.0 MB installed`."""
    if download <= 0 and installed <= 0:
        more = signed_size(-download), signed_size(-installed)
        return f"it changes {more[0]} to download and {more[1]} installed"
    less = size(max(0, download)), size(max(0, installed))
    return f"it saves {less[0]} to download and {less[1]} installed"


# Groups of findings with one cause and one fix, on one target or several.
#
# One default torch brings fifteen foreign distributions to each of nine targets: one thing to read,
# not 135. The table, Markdown and the report of a change group alike.
#
# Texts of several backends that differ only in the backend's name are shown once, with all names;
# other texts are shown with their targets.


#: Stand for the name of a backend, and of a distribution, in a text.
_PLACE, _NAME = "\0", "\1"
#: Targets that are named; more are counted where they are all.
_NAMED = 6
#: Names that are listed where they are not all.
_LISTED = 24


class SharedText(Struct, frozen=True):
    """A text, and the targets (or backends) that it is about."""

    targets: tuple[str, ...]
    text: str
    #: In the text of findings: what the other findings of the group are about, and the bytes of all
    #: of them; empty for none.
    more: str = ""


class FindingGroup(Struct, frozen=True):
    """Findings with one cause, and with one cure on each target."""

    #: The one that stands for the others: what weighs most.
    first: Finding
    findings: tuple[Finding, ...]
    #: In the order of the report.
    targets: tuple[str, ...]
    messages: tuple[SharedText, ...]
    #: Further subjects of the findings, the heaviest first.
    others: tuple[str, ...]
    bytes: int

    def item(
        self, targets: Sequence[str], *, audited: bool, numbers: Mapping[str, int] | None = None
    ) -> Item:
        """Return what reports say of the findings.

        `targets` are all targets of the report; `numbers`: as of `cures`.
        """
        first = self.first

        def lines(texts: Sequence[SharedText]) -> Iterator[str]:
            """Each text, with the targets that it is about where these differ."""
            for shared in texts:
                about = f"{name_targets(shared.targets, targets)}: " if len(texts) > 1 else ""
                yield from filter(None, (about + shared.text, shared.more))

        said = [*lines(self.messages)]
        if first.waived is not None:
            remedies = [f"accepted: {first.waived}"]
        elif all(
            above := sorted({(numbers or {}).get(cure_key(item), 0) for item in self.findings})
        ):
            remedies = [f"fix: {join_names([*map(str, above)])} above"]
        else:
            remedies = [*lines(self.cures(audited=audited, numbers=numbers))]
        is_one = len(self.messages) == 1
        # A chain of one name leads nowhere if the message has that name.
        is_said = len(first.chain) == 1 and first.chain[0] in first.message
        is_everywhere = not any(self.targets) or (
            len(targets) == 1 and set(targets) == set(self.targets)
        )
        return Item(
            "waived" if first.waived is not None else first.severity,
            first.rule,
            first.name,
            first.label,
            said[0] if is_one else "",
            (*(said[1:] if is_one else said), *filter(None, [first.by_policy])),
            () if is_said else first.chain,
            tuple(remedies),
            where="" if is_everywhere else name_targets(self.targets, targets),
        )

    def cures(
        self, *, audited: bool, numbers: Mapping[str, int] | None = None
    ) -> tuple[SharedText, ...]:
        """Return the fixes that resolve the findings; empty if none is known.

        `numbers`: the fixes that stand above, by their `cure_key`.
        """
        above = numbers or {}
        return _group_by_text(
            (
                targets,
                finding.backend,
                f"fix: {above[cure_key(finding)]} above"
                if cure_key(finding) in above
                else self._cure(finding, fix_text(finding.fix, audited=audited)),
                "",
            )
            for finding, targets in _heads(self.findings, self.targets)
            if finding.fix is not None
        )

    def _cure(self, finding: Finding, text: str) -> str:
        """Advice that names one distribution, for several; other fixes name what they change."""
        alike = sum(other.target == finding.target for other in self.findings)
        if alike == 1 or finding.fix is None or finding.fix.kind != "waive":
            return text
        return _nameless(text, finding).replace(_NAME, "any of these")


def group_findings(
    findings: Iterable[Finding], targets: Sequence[str] = ()
) -> tuple[FindingGroup, ...]:
    """The findings, grouped; the worst first, accepted ones last.

    Among equally severe ones those with one cure stand together, and what weighs most comes first.
    `targets` are all targets of the report, in its order.
    """
    of_targets: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        of_targets.setdefault((finding.target, *_cause_key(finding)), []).append(finding)
    by_cause: dict[tuple[object, ...], list[Finding]] = {}
    seen: Counter[tuple[object, ...]] = Counter()
    for (target, *_), alike in of_targets.items():
        about = _about(alike)
        # Two budgets of one target look alike: the first goes with the first of other targets.
        number = seen[target, about]
        seen[target, about] += 1
        by_cause.setdefault((about, number), []).extend(alike)
    made_groups = [_group(alike, targets) for alike in by_cause.values()]
    weights: dict[object, int] = {}
    for group in made_groups:
        weights[_place(group)] = weights.get(_place(group), 0) + group.bytes

    def order(group: FindingGroup) -> tuple[object, ...]:
        first, place = group.first, _place(group)
        about = (first.distribution or "", first.rule, first.path or "")
        return (*place[:2], -weights[place], place[2], -group.bytes, *about, group.targets)

    return tuple(sorted(made_groups, key=order))


def cure_key(finding: Finding) -> str:
    """Return the key that findings with one fix share, whatever their backend; empty for no fix."""
    if finding.fix is None or finding.waived is not None:
        return ""
    return f"{finding.fix.kind} {_neutral(advice(finding.fix, audited=True), finding.backend)}"


def cure_text(findings: Sequence[Finding], *, audited: bool) -> str:
    """The fix of findings with one `cure_key`, with the names of all their backends."""
    first = findings[0]
    text = advice(first.fix, audited=audited) if first.fix is not None else ""
    backends = dict.fromkeys(finding.backend for finding in findings)
    return _fill(_neutral(text, first.backend), backends)


def name_targets(targets: Sequence[str], everything: Sequence[str]) -> str:
    """Targets by their names; `all 9 targets` where they are many and all."""
    if len(targets) > _NAMED and set(everything) <= set(targets):
        return f"all {len(everything)} targets"
    return listing(targets, _LISTED)


def join_names(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def group_by_text(texts: Iterable[tuple[str, str]]) -> tuple[SharedText, ...]:
    """Pairs of a target and a text; each text once, with all its targets."""
    return _group_by_text(((target,), "", text, "") for target, text in texts)


def whereabouts(report: Report) -> Callable[[Verdict], tuple[str, ...]]:
    """A function that says where a verdict of `report` holds: on its backend, or for which targets.

    Those are named where the same distribution is judged otherwise on others of them.
    """
    rows = Counter((item.name, item.version, item.backend) for item in report.distributions)

    def where(verdict: Verdict) -> tuple[str, ...]:
        is_split = rows[verdict.name, verdict.version, verdict.backend] > 1
        return verdict.targets if is_split and verdict.targets else (verdict.backend,)

    return where


def verdicts(
    verdicts: Iterable[Verdict], where: Callable[[Verdict], tuple[str, ...]]
) -> Iterator[tuple[Verdict, SharedText]]:
    """Verdicts that say the same in several places: the first of them, and the reason."""
    by_reason: dict[tuple[str, str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        reason = _neutral(verdict.reason, verdict.backend)
        key = (verdict.name, verdict.version, verdict.verdict, reason)
        by_reason.setdefault(key, []).append(verdict)
    for (_, _, _, reason), alike in by_reason.items():
        backends = dict.fromkeys(verdict.backend for verdict in alike)
        places = dict.fromkeys(place for verdict in alike for place in where(verdict))
        yield alike[0], SharedText(tuple(places), _fill(reason, backends))


# Causes


def _cause_key(finding: Finding) -> tuple[object, ...]:
    """Return the key of findings of one target that read as one."""
    about = (finding.rule, finding.severity, finding.judged, finding.vendor, finding.waived)
    rule = rule_of(finding.rule)
    if finding.fix is not None and finding.fix.kind in rule.shared_fixes:
        # For a waiver, who brings them is what can be taken out.
        cure = (
            _nameless(finding.fix.text, finding)
            if finding.fix.kind == "waive"
            else cure_key(finding)
        )
        return (*about, finding.chain[:1], cure)
    if rule.shares_reason:
        return (*about, finding.message.partition(": ")[2])
    return (*about, finding.fingerprint, _identity(finding))


def _about(alike: Sequence[Finding]) -> tuple[object, ...]:
    """Return the key of such findings across targets; their fixes may differ."""
    first = alike[0]
    about = (first.rule, first.severity, first.judged, first.vendor, first.waived)
    return (*about, first.chain[:1], frozenset(map(_identity, alike)))


def _identity(finding: Finding) -> str:
    """Return the subject of a finding, whatever its backend; the same for two Pythons."""
    return fingerprint(finding.rule, "", finding.distribution, finding.path, finding.vendor)


def _group(findings: Sequence[Finding], report_targets: Sequence[str]) -> FindingGroup:
    ordered = tuple(sorted(findings, key=_heaviest))
    order = {target: place for place, target in enumerate(report_targets)}
    affected = dict.fromkeys(
        target for finding in ordered for target in (finding.target, *finding.also)
    )
    targets = tuple(sorted(affected, key=lambda target: order.get(target, len(order))))
    of_targets: dict[str, list[Finding]] = {}
    for finding in ordered:
        of_targets.setdefault(finding.target, []).append(finding)
    first = ordered[0]
    others = dict.fromkeys(filter(None, (finding.label or finding.path for finding in ordered)))
    others.pop(first.label or first.path or "", None)
    return FindingGroup(
        first,
        ordered,
        targets,
        _group_by_text(
            (about, head.backend, head.message, _with_it(of_targets[head.target]))
            for head, about in _heads(ordered, targets)
        ),
        tuple(others),
        max(sum(map(_weight, alike)) for alike in of_targets.values()),
    )


def _heads(
    ordered: Sequence[Finding], targets: Sequence[str]
) -> Iterator[tuple[Finding, tuple[str, ...]]]:
    """The first finding of each target, and the targets that it is about."""
    covered: set[str] = set()
    place = {target: at for at, target in enumerate(targets)}
    for finding in sorted(ordered, key=lambda item: place[item.target]):
        if finding.target not in covered:
            covered.update((finding.target, *finding.also))
            yield finding, (finding.target, *finding.also)


def _with_it(of_one_target: Sequence[Finding]) -> str:
    """`with it (2.2 GB together): a 1, b 2`; empty for one finding."""
    rest = of_one_target[1:]
    if not rest:
        return ""
    total = sum(map(_weight, of_one_target))
    together = f" ({size(total)} together)" if total else ""
    names = (finding.label or finding.path or "" for finding in rest)
    return f"with it{together}: {listing(names, 30)}"


def _weight(finding: Finding) -> int:
    return sum(item.size for item in finding.evidence)


def _heaviest(finding: Finding) -> tuple[int, int, str, str]:
    return -_weight(finding), len(finding.chain), finding.distribution or "", finding.path or ""


def _place(group: FindingGroup) -> tuple[bool, int, str]:
    cures = sorted({cure_key(finding) for finding in group.findings})
    return group.first.waived is not None, -SEVERITY_RANK[group.first.severity], "\n".join(cures)


# Texts of several backends


def _group_by_text(texts: Iterable[tuple[Sequence[str], str, str, str]]) -> tuple[SharedText, ...]:
    """Targets, their backend, a text and what belongs to it; alike but for the backend is one."""
    variants: dict[tuple[str, str], tuple[list[str], dict[str, None]]] = {}
    for targets, backend, text, more in texts:
        names, backends = variants.setdefault((_neutral(text, backend), more), ([], {}))
        names.extend(targets)
        backends[backend] = None
    return tuple(
        SharedText(tuple(names), _fill(text, backends), more)
        for (text, more), (names, backends) in variants.items()
    )


def _neutral(text: str, backend: str) -> str:
    """A text without the name of its backend, where a sentence or a table of TOML has that.

    Not where it is a value (`torch = "cpu"`) or a part of a path.
    """
    if not backend:
        return text
    name = re.escape(backend)
    text = re.sub(
        rf"\b(on|for|that|which|where) {name}(?![\w-]|[./]\w)",
        lambda match: f"{match[1]} {_PLACE}",
        text,
    )
    return text.replace(f"[backend.{backend}]", f"[backend.{_PLACE}]")


def _nameless(text: str, finding: Finding) -> str:
    name = re.escape(finding.distribution or "")
    return re.sub(rf"(?<![\w./-]){name}(?![\w-]|[./]\w)", _NAME, text) if name else text


def _fill(text: str, backends: Mapping[str, None]) -> str:
    names = list(backends)
    tables = [f"[backend.{name}]" for name in names]
    return text.replace(f"[backend.{_PLACE}]", join_names(tables)).replace(
        _PLACE, join_names(names)
    )


# Totals by cause: findings that one step fixes, and their bytes


class Cause(Struct, frozen=True):
    """Groups of findings with one cure."""

    #: Origin, if a chain has it: `torch 2.9.1 brings nvidia-cudnn-cu12 9.10 ...`.
    title: str
    #: The one that weighs most.
    first: FindingGroup
    findings: int
    #: In the order of the report.
    targets: tuple[str, ...]
    #: Unused bytes, of all targets together; 0 where nothing of it is known to be wasted.
    wasted: int
    cures: tuple[SharedText, ...]


def causes(report: Report, groups: Iterable[FindingGroup]) -> Sequence[Cause]:
    """Return the causes of open errors and warnings, by wasted bytes, then by findings."""
    alike: dict[frozenset[str], list[FindingGroup]] = {}
    for number, group in enumerate(groups):
        if group.first.waived is not None or group.first.severity == "note":
            continue
        keys = frozenset(filter(None, map(cure_key, group.findings))) or {f"\0{number}"}
        # What is cured for one target by the step that cures more on others is one thing to do.
        key = next((held for held in alike if keys <= held), frozenset(keys))
        alike.setdefault(key, []).append(group)
    wasted = {
        (target.id, part.name): max(0, part.wasted)
        for target in report.targets
        if target.composition is not None
        for part in target.composition.distributions
    }
    made = [_make_cause(group, wasted, report) for group in alike.values()]
    return sorted(
        made,
        key=lambda cause: (cause.first.first.severity != "error", -cause.wasted, -cause.findings),
    )


def _make_cause(
    groups: Sequence[FindingGroup], wasted: Mapping[tuple[str, str], int], report: Report
) -> Cause:
    order = {target: place for place, target in enumerate(report.ids)}
    first = max(groups, key=lambda group: group.bytes)
    places = {place for group in groups for place in _places(group)}
    targets = dict.fromkeys(target for group in groups for target in group.targets)
    others = dict.fromkeys(
        name
        for group in groups
        for name in (group.first.label or group.first.path or "", *group.others)
        if name
    )
    others.pop(first.first.label or first.first.path or "", None)
    return Cause(
        _title(first, tuple(others)),
        first,
        sum(len(group.findings) for group in groups),
        tuple(sorted(targets, key=lambda target: order.get(target, len(order)))),
        sum(wasted.get(place, 0) for place in places),
        first.cures(audited=report.is_audit),
    )


def _title(group: FindingGroup, others: Sequence[str]) -> str:
    first = group.first
    about = first.label or (first.path or "").rpartition("/")[2] or first.name
    asker = first.chain[1] if len(first.chain) > 2 else ""
    if asker and asker != about and first.label:
        rest = len([name for name in others if name != asker])
        return f"{asker} brings {about}{f' and {rest} more' if rest else ''}"
    return f"{about}{f' and {len(others)} more' if others else ''}"


def _places(group: FindingGroup) -> Iterator[tuple[str, str]]:
    """Targets and distributions whose bytes findings are about."""
    for finding in group.findings:
        for target in (finding.target, *finding.also):
            for name in finding.distributions:
                yield target, name
            # Findings about the environment have no bytes.
            if not finding.distribution and any(item.size for item in finding.evidence):
                yield target, ""
