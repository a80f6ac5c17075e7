"""Purpose of files that were compiled for one machine and not installed.

`judge.coverage` has the kernels installed with distributions, BM401 those of other backends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from buildmatrix.catalogue.entries import ArtifactEntry
from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import matches_any
from buildmatrix.facts.elf.notes import level_number
from buildmatrix.facts.inventory.model import Artefact, Inventory
from buildmatrix.judge.subject import ImageSubject, once

#: Objects for one architecture, from which a program picks the suitable one.
_OBJECTS = frozenset({"cubin", "hsaco", "zebin"})
#: Whole networks, which name their library's version, or may, and caches of pipelines.
_NETWORKS = frozenset({"engine", "timing", "mxr", "blob", "neff", "om", "vkcache"})
_TITLES = {"vkcache": "Vulkan pipeline cache", "timing": "TensorRT timing cache"}
#: Architecture in a path: `sm_90a`, `sm80`, `gfx942`.
_IN_PATH = re.compile(
    r"(?<![a-z0-9])(?:(?:sm|cc|compute)[_-]?[0-9]{2,3}[af]?|gfx[0-9a-f]{3,4})(?![a-z0-9])"
)
#: Endings of ONNX Runtime's engines and timing caches (these once had `cc75`); a `+` includes newer
#: GPUs.
_SM = re.compile(r"(?<![a-z0-9])(?:sm_?|cc)(?P<number>[0-9]{2,3})(?![0-9a-z+])")
_OF_TENSORRT = ("engine", "timing")
#: PTX and text: nothing that such a program loads.
_TEXT = ("compute_", "spir", "nvptx", "amdgcn", "amdgpu")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One compiled network, or alternative objects for different machines."""

    #: The file, the archive or the cache.
    path: str
    #: How a message names it: `TensorRT engine`.
    title: str
    #: `name==version` of the distribution that contains it.
    owner: str | None = None
    #: Architectures that it runs on, sorted; empty if unknown.
    architectures: tuple[str, ...] = ()
    #: Why there are none.
    note: str | None = None
    #: Source of the architectures, if it is not its code.
    said_by: Literal["", "name", "header"] = ""
    #: True if a program recompiles unsuitable entries.
    is_cache: bool = False
    #: Version of the library that wrote it.
    version: str | None = None
    #: Catalogue entry of that library.
    library: ArtifactEntry | None = None
    evidence: tuple[Evidence, ...] = ()

    @property
    def vendor(self) -> str | None:
        """Vendor of its devices, if nothing more exact is known."""
        return self.evidence[0].vendor if self.evidence and not self.architectures else None

    @property
    def level(self) -> int | None:
        """Required x86-64 level of code for a processor."""
        return next((level_number(arch) for arch in self.architectures), None)


def is_artifact(artefact: Artefact, inventory: Inventory) -> bool:
    """Return True if a file is judged as an artifact, not as part of an installation."""
    return (
        artefact.kind in _OBJECTS | _NETWORKS
        and artefact.owner is None
        and artefact.path not in inventory.packaged
    )


@once
def artifacts(image: ImageSubject) -> tuple[Artifact, ...]:
    """Return the artifacts of this backend by path; installed ones only if they are networks."""
    evidence: dict[str, list[Evidence]] = {}
    for item in image.evidence:
        if item.kind == "device-code":
            evidence.setdefault(item.path, []).append(item)
    groups: dict[str, list[Artefact]] = {}
    for artefact in image.inventory.artefacts:
        items = evidence.get(artefact.path, [])
        if items and all(image.backend not in (item.backend, item.role) for item in items):
            continue
        if is_artifact(artefact, image.inventory) or artefact.kind in _NETWORKS:
            groups.setdefault(_place(artefact), []).append(artefact)
    ordered = [group for _, group in sorted(groups.items())]
    return (
        *(
            _artifact(
                image, group, [item for part in group for item in evidence.get(part.path, [])]
            )
            for group in ordered
        ),
        *_caches(image),
    )


def _place(artefact: Artefact) -> str:
    """Return a key that is the same for alternative files."""
    path = artefact.container or artefact.path
    if artefact.kind in _OBJECTS and artefact.container is None:
        path = path.rpartition("/")[0] + "/"
    return _IN_PATH.sub("*", path.lower())


def _artifact(image: ImageSubject, group: list[Artefact], evidence: list[Evidence]) -> Artifact:
    first = group[0]
    formats = {code.format for code in first.device_code}
    entries = (owned.entry for owned in image.catalogue.artifacts)
    known = (entry for entry in entries for name in formats if matches_any(entry.formats, name))
    entry = next(known, None)
    named = {code.arch for item in group for code in item.device_code if code.arch is not None}
    is_whole = all(any(code.arch for code in item.device_code) for item in group)
    # The header of a network comes before its name.
    by_name = set() if named else {arch for item in group for arch in _find_gpu_in_name(item)}
    # TensorRT can build an engine for more GPUs than the one that its header names.
    is_header = first.kind == "engine" and all(
        code.kind == "unknown" for item in group for code in item.device_code
    )
    notes = (code.note for item in group for code in item.device_code if code.note)
    return Artifact(
        path=first.container or first.path,
        title=entry.title if entry else _TITLES.get(first.kind, f".{first.kind} file"),
        owner=first.owner,
        architectures=tuple(sorted(by_name or named)) if by_name or is_whole else (),
        note=next(notes, None),
        said_by="name" if by_name else "header" if named and is_header else "",
        is_cache=first.kind == "timing",
        version=first.version,
        library=entry,
        evidence=tuple(sorted(evidence, key=lambda item: (-item.size, item.path))),
    )


def _find_gpu_in_name(artefact: Artefact) -> Iterator[str]:
    """Yield the GPU in the name of a TensorRT engine; in other names it proves nothing."""
    match = _SM.search(artefact.path.rpartition("/")[2].lower())
    if artefact.kind in _OF_TENSORRT and match is not None:
        yield f"sm_{match['number']}"


def _caches(image: ImageSubject) -> Iterator[Artifact]:
    """Yield caches of compiled kernels with objects for this backend."""
    for leftover in image.leftovers:
        own = tuple(
            item
            for item in leftover.evidence
            if item.kind == "device-code"
            and item.backend == image.backend
            and item.weight == "strong"
            and _objects(item.architectures)
        )
        if leftover.kind == "kernels" and own:
            archs = {arch for item in own for arch in _objects(item.architectures)}
            yield Artifact(
                path=leftover.path,
                title=leftover.title,
                architectures=tuple(sorted(archs)),
                is_cache=True,
                evidence=own,
            )


def _objects(architectures: Iterable[str]) -> list[str]:
    return [arch for arch in architectures if not arch.startswith(_TEXT)]
