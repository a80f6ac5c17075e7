"""Rules about sizes and wasted bytes: BM603 to BM605."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby

from buildmatrix.base.text import count, listing, size
from buildmatrix.catalogue.leftovers import Leftover
from buildmatrix.catalogue.lookup import distribution, library
from buildmatrix.catalogue.model import Evidence, matches_any
from buildmatrix.facts.inventory.model import ShadowedFiles
from buildmatrix.judge.evidence import is_base, total
from buildmatrix.judge.findings import finding, group_by_owner
from buildmatrix.judge.locks import Wheels
from buildmatrix.judge.model import Finding, Fix, Severity
from buildmatrix.judge.subject import ImageSubject, Subject
from buildmatrix.judge.unfit_artifacts import unfit_caches

# BM603: a target exceeds a size limit of the policy


_MOST_LARGEST = 3


def check_size_budget(image: ImageSubject) -> Iterator[Finding]:
    """At most one finding per budget. Wheels have no root file system and no layers."""
    policy, inventory = image.policy, image.inventory
    if isinstance(image, Wheels):
        download = sum(present.size or 0 for present in image.present)
        yield from _over_budget(
            image,
            "max-download",
            policy.max_download,
            download,
            f"the wheels have {size(download)} to download",
            [(item.size or 0, item.name) for item in image.present],
        )
    else:
        held, layers = inventory.stats.bytes_total, len(inventory.layers)
        yield from _over_budget(
            image,
            "max-size",
            policy.max_size,
            held,
            f"the image holds {size(held)}",
            [(item.size, item.name) for item in inventory.distributions],
        )
        message = f"the image has {count(layers, 'layer')}"
        yield from _over_budget(image, "max-layers", policy.max_layers, layers, message)
    foreign = sum(item.foreign_bytes for item in image.verdicts.values() if item.verdict != "ok")
    yield from _over_budget(
        image,
        "max-foreign",
        policy.max_foreign,
        foreign,
        f"{image.noun} brings {size(foreign)} of other backends",
        [(item.foreign_bytes, item.name) for item in image.verdicts.values()],
    )


def _over_budget(
    image: ImageSubject,
    key: str,
    budgets: Mapping[str, int],
    amount: int,
    message: str,
    sizes: Iterable[tuple[int, str]] = (),
) -> Iterator[Finding]:
    """Yield a finding if `amount` is over the budget; `sizes` are those of distributions."""
    budget = image.policy.budget(budgets, image.target)
    if budget is None or amount <= budget:
        return
    largest = sorted(sizes, key=lambda item: (-item[0], item[1]))[:_MOST_LARGEST]
    shown = ", ".join(f"{name} {size(number)}" for number, name in largest if number)
    yield finding(
        "BM603",
        image,
        f"{message}, and `{key}` allows {budget if key == 'max-layers' else size(budget)}"
        + (f"; the largest distributions are {shown}" if shown else ""),
        fix=Fix(
            "remove",
            f"remove what is not needed, or raise `{key}` under [policy] for {image.backend}",
        ),
        # The first budget that there was keeps its fingerprint.
        identity="" if key == "max-size" else key,
    )


# BM604: files that one layer added and a later one deleted or replaced still ship.
#
# A container does not show them, so no other rule does. Only for images whose layers were read.


_METADATA = (".dist-info", ".egg-info")
#: Characters of an instruction that a message shows.
_MOST_DELETED = 100


def check_deleted_bytes(image: ImageSubject) -> Iterator[Finding]:
    """One finding per pair of layers and foreign vendor; one for the rest of a pair."""

    def key(pair: tuple[tuple[Evidence, ...], ShadowedFiles]) -> tuple[int, int, str]:
        evidence, buried = pair
        return buried.layer, buried.by, evidence[0].vendor if evidence else ""

    judged = [(_foreign_deleted(image, buried), buried) for buried in image.inventory.buried]
    for (_, _, vendor), group in groupby(sorted(judged, key=key), key):
        pairs = list(group)
        groups = sorted(
            (buried for _, buried in pairs), key=lambda buried: (-buried.size, buried.path)
        )
        evidence = tuple(item for items, _ in pairs for item in items)
        if vendor or sum(buried.size for buried in groups) > image.policy.bloat_threshold:
            yield _deleted_finding(image, groups, evidence)


def _deleted_finding(
    image: ImageSubject, groups: list[ShadowedFiles], evidence: tuple[Evidence, ...]
) -> Finding:
    layer, by = groups[0].layer, groups[0].by
    hidden = sum(buried.size for buried in groups)
    content = f"{size(hidden)} in {listing(buried.path or '/' for buried in groups)}"
    if evidence:
        names = listing(dict.fromkeys(item.detail for item in evidence))
        content = f"{image.catalogue.title(evidence[0].backend)} ({names}), {content},"
    verb = "replaced" if all(buried.replaced for buried in groups) else "deleted"
    layers = image.inventory.layers
    is_base = by < len(layers) and layers[by].is_base
    origin = f". Both are layers of the base image {image.target.base.final}." if is_base else ""
    return finding(
        "BM604",
        image,
        f"{content} came with {layer_name(image, layer)} and was {verb} by "
        f"{layer_name(image, by)}: no container sees it, and every pull still carries it{origin}",
        severity="error" if evidence else "note" if is_base else "warning",
        vendor=evidence[0].vendor if evidence else None,
        path=groups[0].path,
        evidence=evidence,
        chain=(layer_name(image, layer), groups[0].path, layer_name(image, by)),
        fix=Fix(
            "base",
            f"take another `base` under [backend.{image.backend}]; no step of your own can remove "
            "these bytes",
        )
        if is_base
        else Fix(
            "rebuild",
            "do not install it; or install, use and delete it in one RUN, or in a build stage of "
            "which only the result is copied",
        ),
        by_path=True,
    )


def layer_name(image: ImageSubject, index: int) -> str:
    """Return the name of a layer in a message: `layer 6 (RUN pip install ...)`."""
    layers = image.inventory.layers
    text = layers[index].instruction if index < len(layers) else ""
    short = text if len(text) <= _MOST_DELETED else f"{text[: _MOST_DELETED - 3]}..."
    return f"layer {index + 1} ({short})" if short else f"layer {index + 1}"


def _foreign_deleted(image: ImageSubject, buried: ShadowedFiles) -> tuple[Evidence, ...]:
    """Return the evidence about another vendor in the names of hidden files."""
    last = buried.path.rpartition("/")[2]
    seen = partial(Evidence, path=buried.path, size=buried.size, confidence="medium")
    evidence: list[Evidence] = []
    if last.endswith(_METADATA):
        name, _, rest = last.rpartition(".")[0].partition("-")
        match = distribution(name, rest, image.catalogue)
        if match is not None and match.vendor is not None and match.weight == "strong":
            evidence.append(
                seen(
                    kind="declared",
                    vendor=match.vendor,
                    backend=match.backend,
                    detail=f"{name} {rest}".strip(),
                    role="package",
                    toolkit=match.toolkit,
                )
            )
    for name in buried.names:
        for owned in library(name, f"{buried.path}/{name}", image.catalogue):
            if owned.weight == "strong" and owned.owned.vendor is not None:
                evidence.append(
                    seen(
                        kind="bundled",
                        vendor=owned.owned.vendor,
                        backend=owned.owned.backend,
                        detail=name,
                        role=owned.owned.entry.role,
                        where=owned.owned.entry.where,
                        toolkit=owned.toolkit,
                    )
                )
    foreign = [item for item in evidence if image.is_foreign(item)]
    # In groups with files of several vendors, the first vendor counts: its files are the largest.
    return tuple(item for item in foreign if item.vendor == foreign[0].vendor)


# BM605: an image ships a package manager's cache, or package files that were not installed.
#
# Nothing in them is judged as installed. Another vendor's files in them are unused all the same.


def check_package_cache(image: ImageSubject) -> Iterator[Finding]:
    """One finding per cache, and per folder with package files."""
    unfit = unfit_caches(image)
    for leftover in image.leftovers:
        foreign = tuple(
            item
            for item in leftover.evidence
            # Files with another name outside are installed; their bytes are not the cache's.
            if item.size and item.weight == "strong" and image.is_foreign(item)
        )
        is_large = leftover.size > image.policy.bloat_threshold
        if foreign or (is_large and leftover.path not in unfit):
            yield _cache_finding(image, leftover, foreign)


def _cache_finding(
    image: ImageSubject, leftover: Leftover, foreign: tuple[Evidence, ...]
) -> Finding:
    """An error for another vendor's bytes; models, and kernels for this backend, may be meant."""
    severity: Severity = "warning" if leftover.kind == "packages" else "note"
    holds = ""
    if foreign:
        severity = "error"
        first = [item for item in foreign if item.vendor == foreign[0].vendor]
        names = listing(dict.fromkeys(item.detail for item in first))
        holds = f", and holds what belongs to {image.catalogue.title(first[0].backend)} ({names})"
    layers = [layer_name(image, leftover.layer)] if leftover.layer is not None else []
    where, files = leftover.path or "/", count(leftover.files, "file")
    what = f"{where} has {count(leftover.files, 'package file')} ({size(leftover.size)})"
    if leftover.title:
        what = f"{where} ({size(leftover.size)}, {files}) is {leftover.title}"
    return finding(
        "BM605",
        image,
        f"{what}{holds}: nothing of it is installed, and every pull carries it"
        + "".join(f"; {layer} left it" for layer in layers),
        severity=severity,
        vendor=foreign[0].vendor if foreign else None,
        path=leftover.path,
        evidence=foreign,
        chain=(*layers, leftover.path),
        fix=Fix("rebuild", leftover.advice),
        by_path=True,
    )


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
