"""Rules about base images and the environment that an image sets: BM601, BM602, BM607."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.base.text import count, listing, size
from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import matches_any
from buildmatrix.judge.evidence import is_base, total
from buildmatrix.judge.findings import finding, group_by_owner
from buildmatrix.judge.model import Finding, Fix, Severity
from buildmatrix.judge.subject import ImageSubject, Subject

# BM601: the base system contains another backend's toolkit


def check_foreign_base(image: ImageSubject) -> Iterator[Finding]:
    """Yield one finding per vendor: system packages, and files of no distribution."""
    for owned in group_by_owner(item for item in image.foreign if _is_base_evidence(item)):
        packages = [item.detail for item in owned.items if item.kind == "declared"]
        files = sorted({item.path for item in owned.items if item.path})
        seen = [
            *([listing(packages)] if packages else []),
            *([f"{count(len(files), 'file')} such as {files[0]}"] if files else []),
        ]
        base = image.target.base.final
        below = f"the base image {base}" if base else "the base of this image"
        yield finding(
            "BM601",
            image,
            f"{below} or its system packages hold "
            f"{owned.title(image)}: {', '.join(seen)} "
            f"({size(total(owned.items))} in files)",
            vendor=owned.vendor,
            path=files[0] if files else None,
            evidence=owned.items,
            chain=(*([base] if base else []), *files[:1]),
            fix=Fix(
                "base",
                f"write a `base` for {image.backend} under [backend.{image.backend}], and look "
                "through `system-packages`",
            ),
        )


def _is_base_evidence(item: Evidence) -> bool:
    if item.kind in ("environment", "dlopen", "python-dlopen") or item.distribution is not None:
        return False
    return item.kind == "declared" or (item.where != "host" and is_base(item))


# BM602: the image sets a variable of another backend, or one that the policy forbids


#: Variables that the `env` block of `base.Dockerfile.j2` sets in every image.
OF_TEMPLATES = ("PATH", "PYTHONUNBUFFERED", "VIRTUAL_ENV")


def check_foreign_environment(image: ImageSubject) -> Iterator[Finding]:
    """One finding per vendor, and one for all variables that the policy forbids."""
    foreign = (item for item in image.foreign if item.kind == "environment")
    for owned in group_by_owner(foreign):
        names = [item.detail.partition("=")[0] for item in owned.items]
        yield finding(
            "BM602",
            image,
            f"the image sets {owned.details}: variables of "
            f"{owned.title(image)}, which signal to container runtimes and "
            f"programs that this is not a {image.backend} image",
            vendor=owned.vendor,
            evidence=owned.items,
            fix=_environment_fix(image, names),
        )
    globs = image.policy.forbid_env
    forbidden = [
        name
        for name in sorted(image.inventory.environment)
        if matches_any((*globs.get("*", ()), *globs.get(image.backend, ())), name)
    ]
    if forbidden:
        # Values are left out: what a policy forbids is often a credential.
        yield finding(
            "BM602",
            image,
            f"the image sets {listing(forbidden)}, which `forbid-env` under [policy] forbids",
            fix=_environment_fix(image, forbidden),
        )


def _environment_fix(image: ImageSubject, names: list[str]) -> Fix:
    ours = [name for name in names if name in OF_TEMPLATES]
    others = [name for name in names if name not in OF_TEMPLATES]
    advice = []
    if ours:
        advice.append(
            f"{listing(ours)}: the generated Dockerfile sets this; replace the `env` block in a "
            "template of your own (docs/templates.md), or allow it under [policy]"
        )
    if others:
        base = image.target.base.final
        present = f" ({base} is the present one)" if base else ""
        advice.append(
            f"take {listing(others)} out of `env`, or take a base image{present} that does not set "
            "it"
        )
    return Fix("base", "; ".join(advice))


# BM607: a base image of the specification has no tag, the tag `latest`, or no digest


#: The base that is none: an empty root file system, of which there is one.
_NOTHING = "scratch"


def check_unpinned_base(subject: Subject) -> Iterator[Finding]:
    """Yield a finding per base image of the specification."""
    base = subject.target.base
    stages = [("final", base.final, base.final_at)]
    if base.build != base.final:
        stages.insert(0, ("build", base.build, base.build_at))
    for stage, reference, at in stages:
        if at is None or not reference or reference == _NOTHING or "@" in reference:
            continue
        folder, slash, last = reference.rpartition("/")
        name, _, tag = last.partition(":")
        name = f"{folder}{slash}{name}"
        asked = subject.policy.pinned_bases
        severity: Severity
        if tag in ("", "latest"):
            named = "has the tag `latest`" if tag else "has no tag, which means `latest`"
            problem = f"{named}: it is another image whenever its owner releases one"
            advice = f"write the tag of a release, with its digest: `{name}:TAG@sha256:...`"
            severity = "error" if asked in ("digest", "tag") else "note" if asked else "warning"
        else:
            problem = "has no digest: its tag can be moved to another image"
            advice = (
                f"write the digest behind the tag, `{name}:{tag}@sha256:...`; the report of a "
                "build has the one that it took, under `bases`"
            )
            severity = "error" if asked == "digest" else "note"
        if severity == "error":
            problem += f', and [policy] asks for more: `pinned-bases = "{asked}"`'
        yield finding(
            "BM607",
            subject,
            f"the base image {reference} {problem}",
            severity=severity,
            path=at.file,
            chain=(str(at), reference),
            fix=Fix("base", advice),
            # Two stages may have two tags of one image.
            identity=f"{stage} {name}",
        )
