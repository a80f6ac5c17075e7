"""Making findings: names, severities, chains and fingerprints, the same for all rules."""

from __future__ import annotations

import hashlib
import re

from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle
from buildmatrix.rules.carried import total
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.registry import BY_CODE
from buildmatrix.rules.subject import Subject

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
    identity: str = "",
) -> Finding:
    """A finding of rule `code`. `owner` is `name==version`, or several of them, comma-separated.

    `by_path` says that each path is a finding of its own, and so part of the fingerprint;
    `identity` is what distinguishes the finding where that is not a path.
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
        fingerprint=fingerprint(
            code, subject.backend, name, identity or (path if by_path else None), vendor
        ),
    )


def run_finding(
    code: str,
    message: str,
    *,
    path: str,
    fix: Fix,
    place: str = "",
    identity: str = "",
    severity: Severity | None = None,
) -> Finding:
    """A finding of rule `code` about a file of the project, which belongs to no target.

    `place` is where in the file, by default its path; `identity` what distinguishes the finding.
    """
    rule = BY_CODE[code]
    return Finding(
        rule=code,
        name=rule.name,
        severity=severity or rule.severity,
        target="",
        backend="",
        vendor=None,
        message=message,
        path=path,
        chain=(place or path,),
        fix=fix,
        fingerprint=fingerprint(code, "", None, identity or path, None),
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
    """Return an identity that does not depend on versions, hashes in file names or the machine."""
    identity = "\0".join((code, backend, distribution or "", _stable(path or ""), vendor or ""))
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _stable(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    name = _SONAME_VERSION.sub(r"\1", demangle(name))
    return _METADATA.sub(r"*\1", _PYTHON.sub("3", f"{folder}{slash}{name}"))


def chain_to_file(subject: Subject, owner: str | None, *rest: str) -> tuple[str, ...]:
    """The chain down to the distribution, then to the file and what it says."""
    name, version = split_owner(owner)
    if name is None:
        return rest
    return (*(subject.chain_to(name) or (f"{name} {version}",)), *rest)
