"""Making findings: names, severities, chains and fingerprints, the same for all rules."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle
from buildmatrix.phrases import size
from buildmatrix.rules.carried import total
from buildmatrix.rules.model import UNFIT, Finding, Fix, Severity
from buildmatrix.rules.registry import BY_CODE
from buildmatrix.rules.subject import ImageSubject, Subject

_PYTHON = re.compile(r"(?<=python)3\.\d+t?|(?<=cpython-)3\d+t?")
_METADATA = re.compile(r"[^/]+(\.(?:dist|egg)-info)(?=/|$)")
_SONAME_VERSION = re.compile(r"(\.so)(?:\.\d+)+$")


def finding(
    code: str,
    subject: Subject,
    message: str,
    *,
    severity: Severity | None = None,
    vendor: str | None = None,
    owner: str | None = None,
    path: str | None = None,
    evidence: tuple[Evidence, ...] = (),
    chain: tuple[str, ...] = (),
    fix: Fix | None = None,
    by_path: bool = False,
) -> Finding:
    """A finding of rule `code`. `owner` is `name==version`, or several of them, comma-separated.

    `by_path` says that each path is a finding of its own, and so part of the fingerprint.
    """
    rule = BY_CODE[code]
    name, version = split_owner(owner)
    at_least = owner in subject.incomplete and total(evidence) > 0
    return Finding(
        rule=code,
        name=rule.name,
        severity=severity or rule.severity,
        target=subject.target.id,
        backend=subject.backend,
        vendor=vendor,
        message=message,
        distribution=name,
        version=version,
        path=path,
        evidence=evidence,
        chain=chain,
        fix=fix,
        at_least=at_least,
        fingerprint=fingerprint(code, subject.backend, name, path if by_path else None, vendor),
    )


def split_owner(owner: str | None) -> tuple[str | None, str | None]:
    """Name and version of `name==version`."""
    if owner is None:
        return None, None
    name, _, version = owner.partition("==")
    return name, version or None


def fingerprint(
    code: str, backend: str, distribution: str | None, path: str | None, vendor: str | None
) -> str:
    """What stays the same when versions, hashes in file names and the machine change."""
    identity = "\0".join((code, backend, distribution or "", _stable(path or ""), vendor or ""))
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _stable(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    name = _SONAME_VERSION.sub(r"\1", demangle(name))
    return _METADATA.sub(r"*\1", _PYTHON.sub("3", f"{folder}{slash}{name}"))


def by_owner(
    evidence: Iterable[Evidence],
) -> Iterator[tuple[str | None, str, tuple[Evidence, ...]]]:
    """Evidence that makes one finding: what one distribution holds of one vendor.

    Yields the distribution (`name==version`), the vendor, and the evidence, the largest first.
    Weak evidence counts beside strong evidence only: alone it proves nothing.
    """

    def key(item: Evidence) -> tuple[str, str]:
        return item.distribution or "", item.vendor

    for (owner, vendor), items in groupby(sorted(evidence, key=key), key):
        ordered = sorted(items, key=lambda item: (-item.size, item.path, item.kind, item.detail))
        if any(item.weight == "strong" for item in ordered):
            yield owner or None, vendor, tuple(ordered)


def weighed(subject: Subject, owner: str | None, evidence: Iterable[Evidence]) -> str:
    """The bytes that the evidence stands for, as a message says them: `at least 3.1 MB`."""
    bound = "at least " if owner in subject.incomplete else ""
    return f"{bound}{size(total(evidence))}"


def by_verdict(image: ImageSubject, owner: str | None) -> Severity | None:
    """How bad it is that a distribution holds or links something of another vendor.

    As bad as its verdict: what works and weighs little is no error, and what is made for this
    backend, or expected on it, can have a little of others'. None, the rule's own severity, for
    what no distribution owns.
    """
    verdict = image.verdicts.get(owner or "")
    if verdict is None:
        return None
    if verdict.verdict in UNFIT:
        # What a deeper look may take back is no error yet.
        return "warning" if verdict.is_open else None
    return "note" if verdict.verdict == "ok" or image.serves_mostly(verdict) else "warning"


def chain_to_file(subject: Subject, owner: str | None, *rest: str) -> tuple[str, ...]:
    """The chain down to the distribution, then to the file and what it says."""
    name, version = split_owner(owner)
    if name is None:
        return rest
    return (*(subject.chain_to(name) or (f"{name} {version}",)), *rest)


def holder(owner: str | None) -> str:
    """How a message names the owner: `xgboost 3.4.1`, or that there is none."""
    name, version = split_owner(owner)
    return f"{name} {version}" if name else "the image, outside of any Python distribution,"
