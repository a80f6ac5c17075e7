"""Comparison of two sides, with notes on everything that could not be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import takewhile

from buildmatrix.base.data import replace
from buildmatrix.base.errors import EXIT_FINDINGS, UndecidedError, UsageError, most_severe
from buildmatrix.base.text import listing
from buildmatrix.commands.diff_contents import (
    Side,
    compare_architectures,
    compare_distributions,
    compare_libraries,
    group_verdict_architectures,
)
from buildmatrix.facts.inventory.model import Layer
from buildmatrix.judge.acceptance import FailOn, fails
from buildmatrix.judge.model import SEVERITY_RANK, VERDICT_RANK, Finding, Verdict, keep_worst
from buildmatrix.judge.registry import RULES
from buildmatrix.reports.diff import (
    ArchitectureChange,
    Change,
    ChangedFinding,
    ComparedSide,
    Comparison,
    FindingChanges,
    LayerChange,
    LayersChange,
    LibraryChange,
    TargetChanges,
    VariableChange,
    VendorChange,
    VerdictChange,
)

#: Layers of an image: overlay file systems support about 500.
_MOST = 1000
#: Names of variables with secret values; results are posted to pull requests.
_SECRET = re.compile(
    r"TOKEN|PASSW|SECRET|CREDENTIAL|PRIVATE|(^|_)(API|ACCESS|AUTH)?_?KEY($|_)", re.I
)
HIDDEN = "(not shown)"
#: Prefix of a step's command from BuildKit and the classic builder.
_SHELL = re.compile(r"^(RUN )?(\|\d+ .*?)?/bin/(ba)?sh -c (#\(nop\) )?")


def _compare_layers(before: Side, after: Side, notes: list[str]) -> LayersChange | None:
    """Return added, removed and changed layers, from the bottom; None without the layers of both.

    Above the first different layer all digests differ, so layers are matched by their instructions.
    """
    if before.kind != "image" or after.kind != "image":
        return None
    if before.layers is None or after.layers is None:
        unknown = [side.source for side in (before, after) if side.layers is None]
        notes.append(f"layers are not compared: those of {listing(unknown)} were not read")
        return None
    digests = zip(before.layers, after.layers, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0].digest == pair[1].digest, digests))
    old, new = before.layers[same:_MOST], after.layers[same:_MOST]
    old_steps, new_steps = (
        [_format_instruction(item) or item.digest for item in side] for side in (old, new)
    )
    changes: list[LayerChange] = []
    matcher = SequenceMatcher(None, old_steps, new_steps, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        gone, came = old[start:end], new[new_start:new_end]
        if tag == "equal":
            changes += (
                LayerChange("changed", index, _format_instruction(now), was.size, now.size)
                for index, (was, now) in enumerate(zip(gone, came, strict=True), same + new_start)
                if was.digest != now.digest
            )
            continue
        changes += (
            LayerChange("removed", index, _format_instruction(layer), layer.size, None)
            for index, layer in enumerate(gone, same + start)
        )
        changes += (
            LayerChange("added", index, _format_instruction(layer), None, layer.size)
            for index, layer in enumerate(came, same + new_start)
        )
    return LayersChange(
        len(before.layers),
        len(after.layers),
        same,
        sum(layer.hidden for layer in before.layers),
        sum(layer.hidden for layer in after.layers),
        tuple(changes),
    )


def _format_instruction(layer: Layer) -> str:
    """Return the instruction as in a Dockerfile, on one line."""
    text = " ".join(layer.instruction.split())
    return _SHELL.sub(lambda match: "" if match[4] else "RUN ", text).removesuffix(" # buildkit")


def _compare_environment(
    before: Side, after: Side, notes: list[str]
) -> tuple[VariableChange, ...] | None:
    """Return added, removed and changed variables, by name; secret values are hidden."""
    if before.environment is None or after.environment is None:
        if (before.kind == "image") != (after.kind == "image"):
            notes.append("layers and environment are not compared: only one side is an image")
        return None
    changes = []
    for name in sorted({*before.environment, *after.environment}):
        old, new = before.environment.get(name), after.environment.get(name)
        if old == new:
            continue
        change: Change = "added" if old is None else "removed" if new is None else "changed"
        if _SECRET.search(name):
            old, new = (None if value is None else HIDDEN for value in (old, new))
        changes.append(VariableChange(change, name, old, new))
    return tuple(changes)


# Findings and verdicts for the same backend


_Key = tuple[str, str]


def _compare_findings(before: Side, after: Side) -> FindingChanges:
    """Return new, removed and changed findings, by severity, and the number of the others.

    Findings are the same if they have the same fingerprint and target: a finding outlives an
    upgrade of its distribution. If each side has one target, these are compared under any names.
    """
    is_pair = len(before.targets) == len(after.targets) == 1
    old, new = _index_findings(before, is_pair), _index_findings(after, is_pair)
    changed = []
    for key in old.keys() & new.keys():
        was, now = old[key], new[key]
        if (was.severity, was.waived is None) != (now.severity, now.waived is None):
            changed.append(ChangedFinding(was, now))
    return FindingChanges(
        len(old.keys() & new.keys()) - len(changed),
        tuple(sorted((new[key] for key in new.keys() - old.keys()), key=_sort_key)),
        tuple(sorted((old[key] for key in old.keys() - new.keys()), key=_sort_key)),
        tuple(sorted(changed, key=lambda changed_finding: _sort_key(changed_finding.after))),
    )


def _index_findings(side: Side, is_pair: bool) -> dict[_Key, Finding]:
    by_key: dict[_Key, Finding] = {}
    for finding in side.findings or ():
        target = "" if is_pair and finding.target in side.targets else finding.target
        by_key.setdefault((target, finding.fingerprint), finding)
    return by_key


def _sort_key(finding: Finding) -> tuple[bool, int, str, str, str, str, str]:
    return (
        finding.waived is not None,
        -SEVERITY_RANK[finding.severity],
        finding.target,
        finding.rule,
        finding.distribution or "",
        finding.path or "",
        finding.fingerprint,
    )


def _compare_verdicts(before: Side, after: Side) -> tuple[VerdictChange, ...]:
    """Return changed verdicts, the worst current ones first."""
    old, new = _find_worst(before.verdicts or ()), _find_worst(after.verdicts or ())
    changes = []
    for key in sorted({*old, *new}):
        verdict, other = old.get(key), new.get(key)
        names = (verdict.verdict if verdict else None), (other.verdict if other else None)
        if names[0] == names[1] or not {*names} - {None, "ok"}:
            continue
        latest = other or verdict
        assert latest is not None
        changes.append(
            VerdictChange(
                *key,
                *names,
                latest.reason,
                verdict.foreign_bytes if verdict else 0,
                other.foreign_bytes if other else 0,
            )
        )

    def rank(change: VerdictChange) -> tuple[int, str, str]:
        worst = -1 if change.after is None else VERDICT_RANK[change.after]
        return -worst, change.name, change.backend

    return tuple(sorted(changes, key=rank))


def _find_worst(verdicts: Iterable[Verdict]) -> dict[_Key, Verdict]:
    worst: dict[_Key, Verdict] = {}
    for verdict in verdicts:
        keep_worst(worst, (verdict.name, verdict.backend), verdict)
    return worst


#: Codes of the rules about files that only layers show.
_HIDDEN = tuple(rule.code for rule in RULES if rule.needs_layers)
#: Distributions named in a note.
_MOST_NAMED = 6


def compare(before: Side, after: Side) -> Comparison:
    """Compare two sides; the order of the result depends on nothing else."""
    notes: list[str] = []
    findings, verdicts = _compare_judgements(before, after, notes)
    ids, other_ids = before.targets, after.targets
    several = len(ids) > 1 or len(other_ids) > 1
    vendors = None
    if (old := before.vendors) is not None and (new := after.vendors) is not None:
        vendors = tuple(
            VendorChange(*key, old.get(key, 0), new.get(key, 0)) for key in sorted({*old, *new})
        )
    return Comparison(
        _describe_side(before),
        _describe_side(after),
        TargetChanges(
            tuple(id for id in other_ids if id not in ids),
            tuple(id for id in ids if id not in other_ids),
        )
        if several
        else TargetChanges(),
        compare_distributions(before, after),
        _compare_libraries(before, after, notes),
        _compare_architectures(before, after, notes),
        vendors,
        _compare_layers(before, after, notes),
        _compare_environment(before, after, notes),
        findings,
        verdicts,
        tuple(notes),
    )


def _describe_side(side: Side) -> ComparedSide:
    return ComparedSide(
        side.source,
        side.kind,
        side.subject,
        side.backends,
        side.size,
        side.base,
        side.digest,
        len(side.held),
        side.unread,
        side.is_undecided,
    )


def _compare_judgements(
    before: Side, after: Side, notes: list[str]
) -> tuple[FindingChanges | None, tuple[VerdictChange, ...] | None]:
    outcome = "findings and verdicts are not compared"
    for side in (before, after):
        if side.findings is None:
            notes.append(
                f"{outcome}: nothing says which backend {side.source} is for; give --backend"
            )
            return None, None
    if not set(before.backends) & set(after.backends) and before.backends and after.backends:
        notes.append(
            f"{outcome}: {before.source} is for {listing(before.backends)} and {after.source} for "
            f"{listing(after.backends)}; --backend judges both for one"
        )
        return None, None
    verdicts = _compare_verdicts(before, after)
    # Findings that only an image's layers show count if both sides have layers.
    unread = [side.source for side in (before, after) if side.kind == "image" and not side.layers]
    plain = [
        tuple(finding for finding in side.findings or () if finding.rule not in _HIDDEN)
        for side in (before, after)
    ]
    if unread and plain != [before.findings, after.findings]:
        notes.append(
            f"{listing(_HIDDEN)} (what later layers hide) is not compared: the layers of "
            f"{listing(unread)} were not read; --layers reads them"
        )
        before, after = replace(before, findings=plain[0]), replace(after, findings=plain[1])
    return _compare_findings(before, after), verdicts


def _compare_libraries(
    before: Side, after: Side, notes: list[str]
) -> tuple[LibraryChange, ...] | None:
    if before.libraries is None or after.libraries is None:
        names = dict.fromkeys(side.source for side in (before, after) if side.libraries is None)
        notes.append(
            "libraries, their versions, and bytes by vendor are not compared: "
            f"{' and '.join(names)} {'shows' if len(names) == 1 else 'show'} only what rules found"
        )
        return None
    return compare_libraries(before.libraries, after.libraries)


def _compare_architectures(
    before: Side, after: Side, notes: list[str]
) -> tuple[ArchitectureChange, ...] | None:
    old, new = before.architectures, after.architectures
    whole = not before.partial and not after.partial
    if old is None or new is None:
        if before.verdicts is None or after.verdicts is None:
            return None
        old, new = (
            group_verdict_architectures(before.verdicts),
            group_verdict_architectures(after.verdicts),
        )
        # Verdicts do not cover files without a distribution.
        whole = False
    partial = before.partial | after.partial
    names = {held.name for held in before.held} & {held.name for held in after.held}
    unknown = sorted({key[0] for key in (*old, *new)} & partial & names)
    if unknown:
        notes.append(
            f"architectures of {listing(unknown, _MOST_NAMED)} are not compared, and bytes by "
            "vendor count only what was read of them: not all of their files were; --deep reads "
            "them"
        )
    return compare_architectures(old, new, {"", *names} - partial, whole=whole)


# Whole comparison, and its exit code


def compare_sides(before: Side, after: Side) -> Comparison:
    """Compare two sides.

    Raises `UsageError` if they have nothing comparable in common.
    """
    check_kinds((before.source, before.is_wheel), (after.source, after.is_wheel))
    for side, other in ((before, after), (after, before)):
        if len(side.targets) > 1 and (
            len(other.targets) < 2 or not {*side.targets} & {*other.targets}
        ):
            raise UsageError(
                f"{side.source} is about {len(side.targets)} targets ({', '.join(side.targets)}) "
                f"and {other.source} is about {', '.join(other.targets) or 'one tree'}; name the "
                "target to compare with --select"
            )
    return compare(before, after)


def check_kinds(before: tuple[str, bool | None], after: tuple[str, bool | None]) -> None:
    """Raise `UsageError` for one wheel and a set; None stands for unknown until read."""
    if None not in (before[1], after[1]) and before[1] != after[1]:
        wheel, set_ = (before, after) if before[1] else (after, before)
        raise UsageError(
            f"{wheel[0]} is one wheel and {set_[0]} is a set of distributions, so everything would "
            "count as a difference; compare two wheels, or two sets"
        )


def exit_code(comparison: Comparison, fail_on: FailOn) -> int:
    """Return 1 for news in the class of `fail_on`, 3 if something is unknown."""
    codes = []
    if comparison.findings is not None and any(
        # It fails the run now, and did not before.
        fails(now, fail_on) and (before is None or not fails(before, fail_on))
        for before, now in comparison.findings.raised
    ):
        codes.append(EXIT_FINDINGS)
    if comparison.before.is_undecided or comparison.after.is_undecided:
        codes.append(UndecidedError.exit_code)
    return most_severe(codes)
