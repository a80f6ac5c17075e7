"""BM607: a base image of the specification has no tag, the tag `latest`, or no digest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.subject import Subject
from buildmatrix.spec.model import Policy

#: The base that is none: an empty root file system, of which there is one.
_NOTHING = "scratch"

#: Part that a reference lacks.
Lacking = Literal["tag", "digest"]


def check(subject: Subject) -> Iterator[Finding]:
    """One finding per base image; none for what no specification names."""
    base = subject.target.base
    stages = [("final", base.final, base.final_at)]
    if base.build != base.final:
        stages.insert(0, ("build", base.build, base.build_at))
    for stage, reference, at in stages:
        lacking = _lacking(reference)
        if at is None or lacking is None:
            continue
        name, tag = _name_and_tag(reference)
        yield finding(
            "BM607",
            subject,
            f"the base image {reference} {_why(lacking, tag)}{_demand(subject.policy, lacking)}",
            severity=_severity(subject.policy, lacking),
            path=at.file,
            chain=(str(at), reference),
            fix=Fix("base", _advice(name, tag, lacking)),
            # Two stages may have two tags of one image.
            identity=f"{stage} {name}",
        )


def _lacking(reference: str) -> Lacking | None:
    if not reference or reference == _NOTHING or "@" in reference:
        return None
    return "tag" if _name_and_tag(reference)[1] in ("", "latest") else "digest"


def _name_and_tag(reference: str) -> tuple[str, str]:
    folder, slash, last = reference.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{folder}{slash}{name}", tag


def _why(lacking: Lacking, tag: str) -> str:
    if lacking == "digest":
        return "has no digest: its tag can be moved to another image"
    named = "has the tag `latest`" if tag else "has no tag, which means `latest`"
    return f"{named}: it is another image whenever its owner releases one"


def _demand(policy: Policy, lacking: Lacking) -> str:
    if _severity(policy, lacking) != "error":
        return ""
    return f', and [policy] asks for more: `pinned-bases = "{policy.pinned_bases}"`'


def _severity(policy: Policy, lacking: Lacking) -> Severity:
    """Return the policy's severity; by default a missing tag is a warning, a digest a note."""
    demand = policy.pinned_bases
    if demand == "digest" or (demand == "tag" and lacking == "tag"):
        return "error"
    return "warning" if lacking == "tag" and demand is None else "note"


def _advice(name: str, tag: str, lacking: Lacking) -> str:
    if lacking == "tag":
        return f"write the tag of a release, with its digest: `{name}:TAG@sha256:...`"
    return (
        f"write the digest behind the tag, `{name}:{tag}@sha256:...`; the report of a build has "
        "the one that it took, under `bases`"
    )
