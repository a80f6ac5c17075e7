"""BM802: a distribution could not be checked for known vulnerabilities."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import count, listing
from buildmatrix.rules.declared import finding_about
from buildmatrix.rules.findings import finding
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import Present, Subject
from buildmatrix.vulnerabilities.model import Advisories, Unchecked


def check(subject: Subject, advisories: Advisories) -> Iterator[Finding]:
    """One finding for all that the service failed for, and one for each that it does not know."""
    failed: list[tuple[Present, Unchecked]] = []
    for present in subject.present:
        unchecked = advisories.unchecked.get((present.name, present.version))
        if unchecked is None:
            continue
        if unchecked.cause == "service":
            failed.append((present, unchecked))
        else:
            yield _unknown(subject, present, unchecked, advisories.service)
    if failed:
        yield _failed(subject, failed, advisories.service)


def _unknown(subject: Subject, present: Present, unchecked: Unchecked, service: str) -> Finding:
    return finding_about(
        "BM802",
        subject,
        present,
        f"{present} could not be checked for known vulnerabilities by {service}: "
        f"{unchecked.reason}",
        fix=Fix(
            "waive",
            f"if no advisories are published about {present.name}, accept it with a [[waive]]",
            accept("BM802", distribution=present.name),
        ),
    )


def _failed(subject: Subject, failed: list[tuple[Present, Unchecked]], service: str) -> Finding:
    names = [present.name for present, _ in failed]
    reasons = listing((unchecked.reason for _, unchecked in failed), 2)
    outcome = (
        f"none of {count(len(failed), 'distribution')} could"
        if len(failed) == len(subject.present)
        else f"{listing(names)} could not"
    )
    return finding(
        "BM802",
        subject,
        f"{outcome} be checked for known vulnerabilities by {service}: {reasons}",
        fix=Fix(
            "waive",
            "run again when the service answers, configure another one in "
            "[policy.vulnerabilities], or skip the check with --no-vulnerabilities",
        ),
    )
