"""Making findings: names, severities, chains and fingerprints, the same for all rules."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from msgspec import Struct

from buildmatrix.base.text import listing, size
from buildmatrix.catalogue.model import Evidence, demangle
from buildmatrix.facts.inventory.model import Binary, ClosedFile
from buildmatrix.facts.python_imports import Reach
from buildmatrix.judge.evidence import total
from buildmatrix.judge.failing import LOADER
from buildmatrix.judge.fixes import fix
from buildmatrix.judge.model import UNFIT, Finding, Fix, Severity
from buildmatrix.judge.registry import BY_CODE
from buildmatrix.judge.subject import ImageSubject, Subject

_PYTHON = re.compile(r"(?<=python)3\.\d+t?|(?<=cpython-)3\d+t?")
_METADATA = re.compile(r"[^/]+(\.(?:(?:dist|egg)-info|egg))(?=/|$)")
_SONAME_VERSION = re.compile(r"(\.so)(?:\.\d+)+$")


def finding(
    code: str,
    subject: Subject | None,
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
    """A finding of rule `code`; without a subject, about a file of the project.

    `owner` is `name==version`, or several of them, comma-separated. `chain` leads to it and its
    path by default. `by_path` says that each path is a finding of its own, and so part of the
    fingerprint; `identity` is what distinguishes the finding where that is not a path.
    """
    rule = BY_CODE[code]
    name, version = split_owner(owner)
    backend = subject.backend if subject is not None else ""
    return Finding(
        rule=code,
        name=rule.name,
        severity=severity or rule.severity,
        target=subject.target.id if subject is not None else "",
        backend=backend,
        vendor=vendor,
        message=message,
        distribution=name,
        version=version,
        path=path,
        evidence=evidence,
        chain=chain or chain_to_file(subject, owner, *([path] if path else [])),
        fix=fix,
        at_least=subject is not None and owner in subject.incomplete and total(evidence) > 0,
        fingerprint=fingerprint(
            code, backend, name, identity or (path if by_path else None), vendor
        ),
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
    folder, slash, name = (path or "").rpartition("/")
    name = _SONAME_VERSION.sub(r"\1", demangle(name))
    stable = _METADATA.sub(r"*\1", _PYTHON.sub("3", f"{folder}{slash}{name}"))
    identity = "\0".join((code, backend, distribution or "", stable, vendor or ""))
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def chain_to_file(subject: Subject | None, owner: str | None, *rest: str) -> tuple[str, ...]:
    """Return the chain to the distribution, then to the file and its text."""
    name, version = split_owner(owner)
    if subject is None or name is None:
        return rest
    return (*(subject.chain_to(name) or (f"{name} {version or ''}".rstrip(),)), *rest)


# One finding per distribution and vendor


#: The owner of a file that no distribution and no package lists.
BASE = "the base"
#: What loads a file, by its reach, as a message ends.
USES: Mapping[Reach | None, str] = {
    "import": ", and an import loads it",
    "guarded": "; the import goes on without it",
    "lazy": "; only a call loads it",
}


class OwnedEvidence(Struct, frozen=True):
    """Evidence about one vendor in one distribution, or outside of distributions."""

    #: `name==version`; None for files that no distribution owns.
    owner: str | None
    vendor: str
    #: The largest first.
    items: tuple[Evidence, ...]

    @property
    def holder(self) -> str:
        """Name of the owner in a message."""
        return holder(self.owner)

    @property
    def details(self) -> str:
        """Details of the evidence, as a message lists them."""
        return listing(item.detail for item in self.items)

    def title(self, image: ImageSubject) -> str:
        """Return the name of the files' backend in a message."""
        return image.catalogue.title(self.items[0].backend)

    def weight(self, subject: Subject) -> str:
        """Return the bytes that the evidence represents, for a message: `at least 3.1 MB`."""
        bound = "at least " if self.owner in subject.incomplete else ""
        return f"{bound}{size(total(self.items))}"


def group_by_owner(evidence: Iterable[Evidence]) -> Iterator[OwnedEvidence]:
    """Evidence that makes one finding: what one distribution has of one vendor.

    Weak evidence counts beside strong evidence only: alone it proves nothing. A loader of all
    vendors' drivers that a file links counts by itself.
    """

    def key(item: Evidence) -> tuple[str, str]:
        return item.distribution or "", item.vendor

    for (owner, vendor), items in groupby(sorted(evidence, key=key), key):
        ordered = sorted(items, key=lambda item: (-item.size, item.path, item.kind, item.detail))
        loaders = (item.kind == "needed" and item.role == LOADER for item in ordered)
        if any(item.weight == "strong" for item in ordered) or any(loaders):
            yield OwnedEvidence(owner or None, vendor, tuple(ordered))


def finding_in_files(
    code: str,
    image: ImageSubject,
    owned: OwnedEvidence,
    message: str,
    *,
    severity: Severity | None = None,
    first: Evidence | None = None,
    is_named: bool = False,
    by_path: bool = False,
    fix: Fix | None = None,
) -> Finding:
    """A finding of rule `code` about files of one distribution, with the chain down to one of them.

    Args:
        code: of the rule.
        image: where the files lie.
        owned: what the finding rests on.
        message: one sentence.
        severity: the rule's own by default.
        first: what stands for the others, the largest by default.
        is_named: whether the chain goes on to what the file names.
        by_path: whether each path is a finding of its own.
        fix: what makes the finding go away.
    """
    first = first or owned.items[0]
    chain = chain_to_file(image, owned.owner, first.path, first.detail) if is_named else ()
    return finding(
        code,
        image,
        message,
        severity=severity,
        vendor=owned.vendor,
        owner=owned.owner,
        path=first.path,
        evidence=owned.items,
        chain=chain,
        fix=fix,
        by_path=by_path,
    )


def foreign_files(code: str, image: ImageSubject, owned: OwnedEvidence, message: str) -> Finding:
    """The same of files of another backend: as bad as the distribution's verdict."""
    name, version = split_owner(owned.owner)
    cure = fix(image, name, version, code) if name else None
    severity = severity_by_verdict(image, owned.owner)
    return finding_in_files(code, image, owned, message, severity=severity, fix=cure)


def severity_by_verdict(image: ImageSubject, owner: str | None) -> Severity | None:
    """Return the severity of another vendor's files in, or linked by, a distribution.

    It follows from the distribution's verdict: a distribution that works and has few foreign bytes
    is no error, and one made for this backend may have a few of others'. None, the rule's own
    severity, if no distribution owns the file.
    """
    verdict = image.verdicts.get(owner or "")
    if verdict is None:
        return None
    if verdict.verdict in UNFIT:
        # A deeper look may still take it back.
        return "warning" if verdict.is_open else None
    return "note" if verdict.verdict == "ok" or image.serves_mostly(verdict) else "warning"


def file_holder(image: ImageSubject, file: Binary | ClosedFile) -> str:
    """Return the name and version of the owner of a file, or `BASE`."""
    if file.owner is not None:
        return file.owner.replace("==", " ")
    return image.inventory.packaged.get(file.path) or BASE


def holder(owner: str | None) -> str:
    """Return the name of an owner in a message: `xgboost 3.4.1`, or the image."""
    name, version = split_owner(owner)
    return f"{name} {version}" if name else "the image, outside of any Python distribution,"
