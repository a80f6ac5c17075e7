"""Coverage of one GPU by an image's device code: as a whole, by distribution, by file.

`judge.coverage` has the kernels installed with distributions, BM401 those of other backends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from buildmatrix.base.text import listing
from buildmatrix.catalogue.drivers import READY, Grade, architectures, grade, is_bound
from buildmatrix.catalogue.entries import ArtifactEntry
from buildmatrix.catalogue.files import LINKED_ROLE
from buildmatrix.catalogue.model import Evidence, matches_any
from buildmatrix.facts.elf.model import CodeGroup, DeviceCode
from buildmatrix.facts.elf.notes import level_number
from buildmatrix.facts.inventory.model import Artefact, Inventory
from buildmatrix.judge.findings import OwnedEvidence, finding_in_files, holder
from buildmatrix.judge.library_versions import device_codes
from buildmatrix.judge.model import Finding, Fix, Severity
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


class Artifact(Struct, frozen=True):
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


# Prevailing architectures: those of most code objects of a distribution.
#
# A compiler makes one object per source file, for the requested architectures. Libraries linked
# with them (a part of the CUDA toolkit, NCCL, CUTLASS) were compiled for others, and a few such
# objects do not make a framework run: of the 560 objects in libphi.so of paddlepaddle-gpu 2.6.2,
# one has code for sm_90, and an H100 is `not supported by Paddle`.


#: One in so many objects, or of their bytes, is not the purpose of a library. Vendors' libraries
#: have kernels for single architectures: 4 in 100 objects of cuTENSOR 2.3.1 serve a V100.
_FEW = 50
#: Bytes of objects that are worth a word when all that they lack is binary code: less is compiled
#: in a second.
WORTH = 1_000_000


class CodeObjects(Struct, frozen=True):
    """Objects that were compiled for the same architectures."""

    architectures: tuple[str, ...]
    count: int
    #: Bytes.
    size: int


def code_objects(
    architectures: Sequence[str], codes: Iterable[DeviceCode], groups: Sequence[CodeGroup]
) -> tuple[CodeObjects, ...]:
    """The objects of one file whose code is for `architectures`; none where that cannot be told.

    Objects for features of exact GPUs do not count, nor do those from which others were linked.
    """
    if not groups:
        code = [item for item in codes if item.arch in architectures]
        if not code or is_bound(architectures):
            return ()
        most = max(item.count for item in code)
        return (CodeObjects(tuple(architectures), most, sum(item.size for item in code)),)
    if any(not set(group.architectures) <= set(architectures) for group in groups):
        return ()
    return tuple(
        CodeObjects((*group.architectures, *portable(group, groups)), group.count, group.size)
        for group in groups
        if group.architectures and not group.is_relocatable and not is_bound(group.architectures)
    )


def linked_when_loaded(groups: Sequence[CodeGroup]) -> tuple[str, ...]:
    """Return the architectures of objects that the driver links when the file is loaded.

    `nvcc -rdc` links nothing where its own objects are PTX alone. Beside these lies the device
    runtime of the toolkit, with machine code for all GPUs: no kernel of the file is compiled by
    that (seen on an H100: error 223 without the driver's compiler). Empty for other files.
    """
    late = [group for group in groups if not _machine_code(group)]
    if not late or not all(group.is_relocatable for group in groups):
        return ()
    return tuple(sorted({arch for group in late for arch in group.architectures}))


def portable(linked: CodeGroup, groups: Iterable[CodeGroup]) -> tuple[str, ...]:
    """Return the code that the driver can compile and link of the objects that `linked` is made of.

    These objects have machine code for the same GPUs. Objects without machine code count if there
    are at least as many as were linked. So the 5 of libphi.so in paddlepaddle-gpu 2.6.2 are in one
    of its objects, and not in the 559 others.
    """
    machine_code = _machine_code(linked)
    archs = {
        arch
        for part in groups
        if part.is_relocatable
        and (
            _machine_code(part) == machine_code
            if _machine_code(part)
            else part.count >= linked.count
        )
        for arch in part.architectures
    }
    return tuple(sorted(archs - machine_code))


def _machine_code(group: CodeGroup) -> frozenset[str]:
    return frozenset(arch for arch in group.architectures if not arch.startswith("compute_"))


def prevailing(device: str, objects: Sequence[CodeObjects]) -> Grade | None:
    """Return `none` or `jit` if most objects have no better code for a GPU; else None."""
    total = sum(item.count for item in objects)
    grades = [(grade(device, item.architectures), item) for item in objects]
    served = [item for served, item in grades if served != "none"]
    if _FEW * sum(item.count for item in served) < total and _FEW * sum(
        item.size for item in served
    ) < sum(item.size for item in objects):
        return "none"
    late = [item for served, item in grades if served == "jit"]
    if 2 * sum(item.count for item in late) > total and sum(item.size for item in late) >= WORTH:
        return "jit"
    return None


#: Kind of code that programs link by a library before anything can run it.
_TO_BE_LINKED = "lto-ir"


class CodeFile(Struct, frozen=True):
    """A file with device code for the backend of the image."""

    evidence: Evidence
    #: Architectures of its code, sorted: `sm_90`, `compute_90`.
    architectures: tuple[str, ...]
    #: True if it has code for GPUs that its bytes do not name, or was not read to its end.
    is_open: bool
    #: None of a file other than a library: what loads it chooses among many of its kind.
    objects: tuple[CodeObjects, ...] | None = None

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.evidence.path


class CodeHolder(Struct, frozen=True):
    """Holder of device code: a distribution, a system package, or a file without an owner."""

    #: How a message names it.
    name: str
    #: `name==version` of a distribution; None for the others.
    owner: str | None
    #: By path.
    files: tuple[CodeFile, ...]
    #: True if some of its files were not read, or not to their ends.
    is_partial: bool

    @property
    def architectures(self) -> tuple[str, ...]:
        """Architectures of all its files, sorted."""
        return tuple(sorted({arch for file in self.files for arch in file.architectures}))


class Served(Struct, frozen=True):
    """Grade of the code of a file or a holder on one GPU."""

    #: `unknown` where none of it is for this GPU by its name, and not all of it has one.
    grade: Grade
    #: True if nothing unnamed or unread can serve it better.
    is_certain: bool
    #: True if it is the grade of most objects, and a few have a better one.
    is_of_most: bool = False

    @property
    def is_missing(self) -> bool:
        """Return True if it certainly has nothing for the GPU."""
        return self.grade == "none" and self.is_certain


class HolderCoverage(Struct, frozen=True):
    """Coverage of one GPU by one holder: its best file's, or that of most objects."""

    holder: CodeHolder
    served: Served
    #: Coverage by each file, in their order.
    files: tuple[Served, ...]


class RequiredDevice(Struct, frozen=True):
    """A GPU that a target has to run on."""

    #: `sm_90`, `gfx942`.
    arch: str
    #: Names of the node classes that have it; none for what only the `archs` of the target name.
    node_classes: tuple[str, ...]

    def __str__(self) -> str:
        if not self.node_classes:
            return self.arch
        noun = "node class" if len(self.node_classes) == 1 else "node classes"
        return f"{self.arch} ({noun} {listing(self.node_classes)})"


def required_devices(image: ImageSubject) -> tuple[RequiredDevice, ...]:
    """The GPUs that the target declares, then those of the node classes that it runs on."""
    classes: dict[str, list[str]] = {arch: [] for arch in image.target.archs}
    for node in image.target.node_classes:
        for arch in architectures(node, image.catalogue):
            classes.setdefault(arch, []).append(node.name)
    return tuple(RequiredDevice(arch, tuple(names)) for arch, names in classes.items())


@once
def coverage(image: ImageSubject, device: str) -> tuple[HolderCoverage, ...]:
    """Return the grades of an image's device code on a GPU, by name of the holder.

    An image without device code has none: its kernels are made elsewhere, or there are none.
    """
    return tuple(
        HolderCoverage(
            item,
            _served(device, item.files, is_open=item.is_partial),
            tuple(_served(device, [file]) for file in item.files),
        )
        for item in code_holders(image)
    )


@once
def code_holders(image: ImageSubject) -> tuple[CodeHolder, ...]:
    """Return the holders of device code for the backend of the image, sorted by name.

    Static archives and LTO-IR do not count, since no driver loads them; neither do test data and
    text. Code that was compiled for one machine and not installed is BM606's.
    """
    codes = device_codes(image)
    groups = {binary.path: binary.elf.code_groups for binary in image.inventory.binaries}
    alone = {
        artefact.path
        for artefact in image.inventory.artefacts
        if is_artifact(artefact, image.inventory)
    }
    files: dict[tuple[str, str | None], list[CodeFile]] = {}
    for item in image.evidence:
        if (
            item.kind == "device-code"
            and item.backend == image.backend
            and item.weight == "strong"
            and item.role != LINKED_ROLE
            and item.path not in alone
        ):
            present = codes.get(item.path, ())
            loaded = [code for code in present if code.kind != _TO_BE_LINKED]
            if present and not loaded:
                continue
            named = {code.arch for code in loaded}
            late = linked_when_loaded(groups.get(item.path, ()))
            archs = tuple(
                arch for arch in item.architectures if arch in named and (not late or arch in late)
            )
            is_open = (
                not archs
                or item.path in image.partial
                or any(code.arch is None and code.size for code in loaded)
            )
            objects = (
                code_objects(archs, loaded, groups[item.path]) if item.path in groups else None
            )
            owner = item.distribution
            name = holder(owner) if owner else image.inventory.packaged.get(item.path, item.path)
            code_file = CodeFile(item, archs, is_open, objects)
            files.setdefault((name, owner), []).append(code_file)
    return tuple(
        CodeHolder(
            name,
            owner,
            tuple(sorted(held, key=lambda file: file.path)),
            owner in image.incomplete
            if owner is not None
            else any(file.path in image.partial for file in held),
        )
        for (name, owner), held in sorted(files.items(), key=lambda pair: pair[0][0])
    )


def _served(device: str, files: Sequence[CodeFile], *, is_open: bool = False) -> Served:
    codes = {arch for file in files for arch in file.architectures}
    is_open |= any(file.is_open for file in files)
    best = grade(device, codes)
    # What is no library serves by any of its objects.
    others = [file.architectures for file in files if file.objects is None]
    if best != "none" and not is_open and all(grade(device, archs) == "none" for archs in others):
        most = prevailing(device, [item for file in files for item in file.objects or ()])
        if most is not None and most != best:
            return Served(most, is_certain=True, is_of_most=True)
    # Code for devices that its name does not have may be for this one.
    is_open |= any(grade(device, [code]) == "unknown" for code in codes)
    if best in READY or not is_open:
        return Served(best, is_certain=True)
    return Served("unknown" if best == "none" else best, is_certain=False)


def finding_of_holder(
    code: str,
    image: ImageSubject,
    item: CodeHolder,
    message: str,
    *,
    files: Iterable[CodeFile] | None = None,
    severity: Severity | None = None,
    fix: Fix | None = None,
) -> Finding:
    """A finding of rule `code` about some files of a holder, by default all; the largest first."""
    pieces = [file.evidence for file in (item.files if files is None else files)]
    pieces.sort(key=lambda piece: (-piece.size, piece.path))
    owned = OwnedEvidence(item.owner, pieces[0].vendor, tuple(pieces))
    return finding_in_files(
        code, image, owned, message, severity=severity, fix=fix, by_path=item.owner is None
    )
