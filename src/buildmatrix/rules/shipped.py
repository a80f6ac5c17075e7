"""Helpers of the rules about files, which report each distribution and vendor once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.model import Binary, ClosedFile
from buildmatrix.phrases import listing, size
from buildmatrix.rules.belonging import title
from buildmatrix.rules.carried import total
from buildmatrix.rules.failing import LOADER
from buildmatrix.rules.findings import chain_to_file, finding, split_owner
from buildmatrix.rules.fixes import fix
from buildmatrix.rules.model import UNFIT, Finding, Fix, Severity
from buildmatrix.rules.subject import ImageSubject, Subject

#: The owner of a file that no distribution and no package lists.
BASE = "the base"


@dataclass(frozen=True, slots=True)
class OwnedEvidence:
    """Evidence about one vendor in one distribution, or outside of distributions."""

    #: `name==version`; None for files that no distribution owns.
    owner: str | None
    vendor: str
    #: The largest first.
    items: tuple[Evidence, ...]

    @property
    def name(self) -> str | None:
        """Name of the distribution."""
        return split_owner(self.owner)[0]

    @property
    def holder(self) -> str:
        """How a message names the owner."""
        return holder(self.owner)

    @property
    def details(self) -> str:
        """Details of the evidence, as a message lists them."""
        return listing(item.detail for item in self.items)

    def title(self, image: ImageSubject) -> str:
        """How a message names the backend that the files are for."""
        return title(self.items[0].backend, image.catalogue)

    def weight(self, subject: Subject) -> str:
        """Return the bytes that the evidence represents, for a message: `at least 3.1 MB`."""
        bound = "at least " if self.owner in subject.incomplete else ""
        return f"{bound}{size(total(self.items))}"


def by_owner(evidence: Iterable[Evidence]) -> Iterator[OwnedEvidence]:
    """Evidence that makes one finding: what one distribution has of one vendor.

    Weak evidence counts beside strong evidence only: alone it proves nothing. A loader of all
    vendors' drivers that a file links counts by itself.
    """

    def key(item: Evidence) -> tuple[str, str]:
        return item.distribution or "", item.vendor

    for (owner, vendor), items in groupby(sorted(evidence, key=key), key):
        ordered = sorted(items, key=lambda item: (-item.size, item.path, item.kind, item.detail))
        if any(item.weight == "strong" or _is_linked_loader(item) for item in ordered):
            yield OwnedEvidence(owner or None, vendor, tuple(ordered))


def _is_linked_loader(item: Evidence) -> bool:
    return item.kind == "needed" and item.role == LOADER


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
    rest = (first.path, first.detail) if is_named else (first.path,)
    return finding(
        code,
        image,
        message,
        severity=severity,
        vendor=owned.vendor,
        owner=owned.owner,
        path=first.path,
        evidence=owned.items,
        chain=chain_to_file(image, owned.owner, *rest),
        fix=fix,
        by_path=by_path,
    )


def foreign_files(code: str, image: ImageSubject, owned: OwnedEvidence, message: str) -> Finding:
    """The same of files of another backend: as bad as the distribution's verdict."""
    name, version = split_owner(owned.owner)
    cure = fix(image, name, version, code) if name else None
    severity = by_verdict(image, owned.owner)
    return finding_in_files(code, image, owned, message, severity=severity, fix=cure)


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


def file_holder(image: ImageSubject, file: Binary | ClosedFile) -> str:
    """Return the name and version of what brought a file, or `BASE`."""
    if file.owner is not None:
        return file.owner.replace("==", " ")
    return image.inventory.packaged.get(file.path) or BASE


def holder(owner: str | None) -> str:
    """How a message names an owner: `xgboost 3.4.1`, or that there is none."""
    name, version = split_owner(owner)
    return f"{name} {version}" if name else "the image, outside of any Python distribution,"
