"""Rules about known vulnerabilities: BM801 and BM802."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import date

from buildmatrix.base.parsing import parse_version, version_or_none
from buildmatrix.base.text import count, listing
from buildmatrix.catalogue.model import DistributionMatch
from buildmatrix.judge import fixes
from buildmatrix.judge.advisories.model import Advisories, Advisory, PinAnswer, Unchecked
from buildmatrix.judge.distributions import is_by_local_version
from buildmatrix.judge.evidence import title
from buildmatrix.judge.findings import finding, fingerprint
from buildmatrix.judge.fixes import accept
from buildmatrix.judge.model import Acceptance, Finding, Fix
from buildmatrix.judge.subject import Present, Subject
from buildmatrix.matrix.model import AcceptedAdvisory

# BM801: a distribution has known vulnerabilities


_MOST_ADVISORIES = 6


def check_known_vulnerability(
    subject: Subject, advisories: Advisories, today: date
) -> Iterator[Finding]:
    """One finding per distribution, with all of its advisories.

    Those that the specification ignores do not count; where none is left, the finding is waived.
    """
    policy = subject.policy.vulnerabilities
    matches = {present.name: match for present, match in subject.matches}
    for present in subject.present:
        answer = advisories.answers.get((present.name, present.version))
        if answer is None or not answer.advisories:
            continue
        valid = [entry for entry in policy.ignore if today <= entry.expires]
        ignored = [
            (advisory, next((entry for entry in valid if entry.id in advisory.names), None))
            for advisory in answer.advisories
        ]
        left = tuple(advisory for advisory, entry in ignored if entry is None)
        entries = [entry for _, entry in ignored if entry is not None]
        reasons = [f"{entry.id}: {entry.reason}" for entry in entries]
        late = [
            entry
            for entry in policy.ignore
            if entry not in valid and any(entry.id in advisory.names for advisory in left)
        ]
        shown = left or answer.advisories
        item = finding(
            "BM801",
            subject,
            _vulnerability_message(present, answer, shown, reasons if left else (), late),
            severity=policy.severity,
            owner=present.owner,
            fix=_vulnerability_fix(subject, present, matches.get(present.name), shown),
        )
        if not left:
            expires = min(entry.expires for entry in entries).isoformat()
            reason = listing(reasons)
            accepted = Acceptance(by="advisory", reason=reason, expires=expires)
            item = replace(item, waived=reason, acceptance=accepted)
        # A baseline must not cover an advisory that is published tomorrow.
        flaws = ",".join(sorted(advisory.identity for advisory in shown))
        identity = fingerprint(item.rule, item.backend, item.distribution, None, flaws)
        yield replace(item, advisories=shown, fingerprint=identity)


def _vulnerability_message(
    present: Present,
    answer: PinAnswer,
    advisories: Collection[Advisory],
    ignored: Collection[str],
    late: Collection[AcceptedAdvisory],
) -> str:
    names = listing(
        (
            f"{advisory.id} "
            + (f"(fixed in {', '.join(advisory.fixed)})" if advisory.fixed else "(no fix yet)")
            for advisory in advisories
        ),
        _MOST_ADVISORIES,
    )
    alias = f" (asked as {answer.version})" if answer.version != present.version else ""
    noun = "known vulnerability" if len(advisories) == 1 else "known vulnerabilities"
    parts = [f"{present}{alias} has {len(advisories)} {noun}: {names}"]
    if ignored:
        parts.append(f"{count(len(ignored), 'other')} ignored, {listing(ignored)}")
    parts += [
        f"{accepted.id} was ignored until {accepted.expires.isoformat()}" for accepted in late
    ]
    return "; ".join(parts)


def _vulnerability_fix(
    subject: Subject,
    present: Present,
    match: DistributionMatch | None,
    advisories: Iterable[Advisory],
) -> Fix:
    # The distribution, not only this build of it, belongs to another backend.
    if (
        match is not None
        and subject.is_foreign(match)
        and subject.backend not in match.tolerated_in
        and match.weight == "strong"
        and match.kind in ("native", "pure", "meta")
        and not is_by_local_version(match)
    ):
        way = fixes.fix(subject, present.name, present.version, "BM801")
        owner = title(match.backend, subject.catalogue)
        text = f"do not upgrade it, remove it: it belongs to {owner}; {way.text}"
        return Fix("remove", text, way.patch)
    version = find_fixed_version(present.version, advisories)
    if version is None:
        return Fix(
            "waive",
            f"no version without them is known yet: do without {present.name}, or accept them, "
            "each by its ID, under `ignore` in [policy.vulnerabilities]",
        )
    line = f"{present.name}>={version}"
    return Fix(
        "upgrade", f"require `{line}`, the nearest version without them, and lock again", line
    )


def find_fixed_version(installed: str, advisories: Iterable[Advisory]) -> str | None:
    """The lowest version above `installed` that none of the advisories is about, as far as known.

    Of each advisory the nearest fixed version counts (there is one per maintained branch), of all
    of them the highest. None where one of them has none.
    """
    current = version_or_none(installed)
    nearest = []
    for advisory in advisories:
        fixed = [version for version in map(version_or_none, advisory.fixed) if version is not None]
        above = [v for v in fixed if current is not None and v > parse_version(current.public)]
        if not above:
            return None
        nearest.append(min(above))
    return str(max(nearest)) if nearest else None


# BM802: a distribution could not be checked for known vulnerabilities


def check_not_checked(subject: Subject, advisories: Advisories) -> Iterator[Finding]:
    """One finding for all that the service failed for, and one for each that it does not know."""
    failed: list[tuple[Present, Unchecked]] = []
    for present in subject.present:
        unchecked = advisories.unchecked.get((present.name, present.version))
        if unchecked is None:
            continue
        if unchecked.cause == "service":
            failed.append((present, unchecked))
            continue
        advice = f"if no advisories are published about {present.name}, accept it with a [[waive]]"
        yield finding(
            "BM802",
            subject,
            f"{present} could not be checked for known vulnerabilities by {advisories.service}: "
            f"{unchecked.reason}",
            owner=present.owner,
            fix=Fix("waive", advice, accept("BM802", distribution=present.name)),
        )
    if not failed:
        return
    outcome = f"{listing(present.name for present, _ in failed)} could not"
    if len(failed) == len(subject.present):
        outcome = f"none of {count(len(failed), 'distribution')} could"
    reasons = listing((unchecked.reason for _, unchecked in failed), 2)
    yield finding(
        "BM802",
        subject,
        f"{outcome} be checked for known vulnerabilities by {advisories.service}: {reasons}",
        fix=Fix(
            "waive",
            "run again when the service answers, configure another one in "
            "[policy.vulnerabilities], or skip the check with --no-vulnerabilities",
        ),
    )
