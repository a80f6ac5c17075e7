"""BM604: files that one layer added and a later one deleted still ship.

A container does not see it, so no other rule does. What was replaced counts too: the image carries
both. Only for images whose layers were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from buildmatrix.catalogue.lookup import distribution, library
from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.model import ShadowedFiles
from buildmatrix.phrases import listing, size
from buildmatrix.rules.belonging import title
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import ImageSubject

_METADATA = (".dist-info", ".egg-info")
#: Characters of an instruction that a message shows.
_SHOWN = 100


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per pair of layers and foreign vendor; one for the rest of a pair."""
    judged = [(_foreign(image, buried), buried) for buried in image.inventory.buried]
    judged.sort(key=lambda item: (item[1].layer, item[1].by, _vendor(item[0])))
    for (layer, by, vendor), group in groupby(
        judged, key=lambda item: (item[1].layer, item[1].by, _vendor(item[0]))
    ):
        pairs = list(group)
        groups = sorted(
            (buried for _, buried in pairs), key=lambda buried: (-buried.size, buried.path)
        )
        total = sum(buried.size for buried in groups)
        evidence = tuple(item for items, _ in pairs for item in items)
        if vendor or total > image.policy.bloat_threshold:
            yield _finding(image, groups, total, layer, by, evidence)


def _finding(
    image: ImageSubject,
    groups: list[ShadowedFiles],
    total: int,
    layer: int,
    by: int,
    evidence: tuple[Evidence, ...],
) -> Finding:
    content = f"{size(total)} in {listing(buried.path or '/' for buried in groups)}"
    if evidence:
        names = listing(dict.fromkeys(item.detail for item in evidence))
        content = f"{title(evidence[0].backend, image.catalogue)} ({names}), {content},"
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
        fix=_fix(image, is_base=is_base),
        by_path=True,
    )


def _fix(image: ImageSubject, *, is_base: bool) -> Fix:
    if is_base:
        return Fix(
            "base",
            f"take another `base` under [backend.{image.backend}]; no step of your own can remove "
            "these bytes",
        )
    return Fix(
        "rebuild",
        "do not install it; or install, use and delete it in one RUN, or in a build stage of "
        "which only the result is copied",
    )


def layer_name(image: ImageSubject, index: int) -> str:
    """How a message names a layer: `layer 6 (RUN pip install ...)`."""
    layers = image.inventory.layers
    text = layers[index].instruction if index < len(layers) else ""
    short = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    return f"layer {index + 1} ({short})" if short else f"layer {index + 1}"


def _vendor(evidence: tuple[Evidence, ...]) -> str:
    return evidence[0].vendor if evidence else ""


def _foreign(image: ImageSubject, buried: ShadowedFiles) -> tuple[Evidence, ...]:
    """Return the evidence about another vendor in the names of hidden files."""
    last = buried.path.rpartition("/")[2]
    evidence: list[Evidence] = []
    if last.endswith(_METADATA):
        name, _, rest = last.rpartition(".")[0].partition("-")
        match = distribution(name, rest, image.catalogue)
        if match is not None and match.vendor is not None and match.weight == "strong":
            evidence.append(
                Evidence(
                    kind="declared",
                    vendor=match.vendor,
                    backend=match.backend,
                    path=buried.path,
                    detail=f"{name} {rest}".strip(),
                    role="package",
                    confidence="medium",
                    toolkit=match.toolkit,
                    size=buried.size,
                )
            )
    for name in buried.names:
        for owned in library(name, f"{buried.path}/{name}", image.catalogue):
            if owned.weight == "strong" and owned.owned.vendor is not None:
                evidence.append(
                    Evidence(
                        kind="bundled",
                        vendor=owned.owned.vendor,
                        backend=owned.owned.backend,
                        path=buried.path,
                        detail=name,
                        role=owned.owned.entry.role,
                        confidence="medium",
                        where=owned.owned.entry.where,
                        toolkit=owned.toolkit,
                        size=buried.size,
                    )
                )
    foreign = [item for item in evidence if image.is_foreign(item)]
    # Of groups with files of several vendors the first vendor counts: its files are the largest.
    return tuple(item for item in foreign if item.vendor == foreign[0].vendor)
