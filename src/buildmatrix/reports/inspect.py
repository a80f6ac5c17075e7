"""The report of `inspect`: facts of a file and contents of images and wheels, as data and text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import msgspec
from msgspec import Struct

from buildmatrix.base.text import count, listing, printable, size
from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Artefact, Binary, Distribution, Unread
from buildmatrix.facts.symbols import Imports
from buildmatrix.reports.sections import Section, cut, filled, sentences
from buildmatrix.reports.terminal import Painter, draw, wrapped
from buildmatrix.reports.why import made_by

# Data; JSON uses these names


class Share(Struct, frozen=True):
    """Share of one vendor in a wheel, in one role."""

    vendor: str
    backend: str
    role: str
    #: Bytes of the files that are the vendor's, and of its device code inside of others.
    size: int
    files: int
    architectures: tuple[str, ...] = ()


class Machines(Struct, frozen=True):
    """Requirements on the machine that runs it."""

    #: Source: a target and its node classes.
    name: str
    backend: str
    #: GPU architectures, `sm_90`, `gfx942`.
    archs: tuple[str, ...]


class Holding(Struct, frozen=True):
    """One distribution, or with an empty name all files that none owns."""

    name: str
    version: str
    size: int
    #: Backend → bytes of its files and device code, the most first.
    backends: Mapping[str, int] = msgspec.field(default_factory=dict)


class LayerShare(Struct, frozen=True):
    """One layer of an image."""

    #: Instruction that made it; empty if the image does not record it.
    instruction: str
    size: int
    #: Bytes of it that later layers deleted or replaced.
    hidden: int
    #: Files of it that matter to an accelerator or to Python.
    files: int
    backends: Mapping[str, int] = msgspec.field(default_factory=dict)


class Architecture(Struct, frozen=True):
    """Device code of one architecture, in all files together."""

    backend: str
    #: `sm_90`, `gfx942`; empty where the bytes do not say.
    arch: str
    #: As `facts.elf.model.DeviceCode.kind`.
    kind: str
    size: int
    count: int
    files: int
    #: `native`, `jit` or `none` on the machines; empty where that is not known.
    use: str = ""


class VariantUse(Struct, frozen=True):
    """Use of a wheel variant by the machines of a node class, or of a target without any."""

    machines: str
    use: Literal["taken", "not-taken", "undecided"]
    #: Why it is not taken, or why that is unknown.
    reason: str = ""


class ReleaseVariant(Struct, frozen=True):
    """A wheel variant: that of a distribution, or one of a release on an index."""

    label: str
    #: `demo 1.0`; empty for those of a release.
    distribution: str
    #: `nvidia :: sm_arch :: 90_real`, sorted.
    properties: tuple[str, ...] = ()
    #: Nothing where no target was selected.
    uses: tuple[VariantUse, ...] = ()


class Contents(Struct, frozen=True):
    """Totals of a wheel, an image or a tree."""

    files: int
    size: int
    binaries: int
    shares: tuple[Share, ...] = ()
    distributions: tuple[Holding, ...] = ()
    layers: tuple[LayerShare, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    machines: Machines | None = None


class Inspection(Struct, frozen=True):
    """Everything about one file (an ELF object, a file of device code, a wheel), or one tree."""

    path: str
    size: int
    kind: str
    binaries: tuple[Binary, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    #: Only for single ELF objects.
    imports: tuple[Imports, ...] = ()
    #: The catalogue's opinion.
    evidence: tuple[Evidence, ...] = ()
    #: Only for wheels and trees, largest first.
    shares: tuple[Share, ...] = ()
    #: Unread parts; the rest is valid.
    unread: tuple[Unread, ...] = ()
    #: Only for wheels and trees.
    contents: Contents | None = None
    #: Of distributions that are variants, and what an index says of the variants of a release.
    variants: tuple[ReleaseVariant, ...] = ()


@dataclass(frozen=True, slots=True)
class Inspections:
    """Inspections of everything that one command was asked about."""

    schema: Literal["buildmatrix/inspect/1"] = field(default="buildmatrix/inspect/1", kw_only=True)
    files: tuple[Inspection, ...]


# Text: the parts of an inspection as sections


#: Distributions that are listed by name; JSON has all.
_MAX_LISTED = 20
#: Architectures of a vendor's share that stand in its line; the list of them has all.
_ARCHITECTURES = 12
#: Characters of an instruction.
_INSTRUCTION = 120
#: Sections of an ELF object that are shown although the catalogue is silent about them: the
#: largest.
_LARGEST_SECTIONS = 6
#: Items of one list that are shown; JSON has them all.
_SHOWN = 12
#: Sections that say something whatever they hold.
_TELLING = (".note.dlopen", ".gnu_debugdata", ".nv_fatbin", ".hip_fatbin", "__nv_relfatbin")
# DT_FLAGS_1, as binutils spells them.
_FLAGS = {0x1: "NOW", 0x8: "NODELETE", 0x20: "NOOPEN", 0x80: "ORIGIN", 0x800: "NODEFLIB",
          0x08000000: "PIE"}  # fmt: skip
_USE = {
    "": "",
    "native": "",
    "jit": ": compiled by the driver when a program starts",
    "none": ": not usable there",
}
#: Intermediate code of link-time optimization, which the driver itself does not compile.
_LINKED = ": compiled when a program links it at run time"


def render(inspections: Inspections, *, width: int, color: bool) -> str:
    """The inspections one after the other, wrapped at `width` columns."""
    paint, width = Painter(color), max(width, 40)
    texts = (_lines(inspection, width, paint) for inspection in inspections.files)
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in texts)


def _lines(inspection: Inspection, width: int, paint: Painter) -> Iterator[str]:
    path = paint(printable(inspection.path), "bold")
    yield f"{path}  {size(inspection.size)}, {_kind(inspection)}"
    if inspection.kind == "elf":
        elf = inspection.binaries[0].elf
        yield from chain(*draw([_elf_fields(elf)], width, paint))
        yield from _imports(elf, inspection.imports, width, paint)
    for section in filled(*_sections(inspection)):
        margin = "  " if section.title else ""
        (lines,) = draw([section], width - len(margin), paint)
        yield from (margin + line for line in lines)


def _kind(inspection: Inspection) -> str:
    contents = inspection.contents
    if inspection.kind == "elf":
        elf = inspection.binaries[0].elf
        order = "little" if elf.little_endian else "big"
        return f"ELF {elf.bits}-bit {order}-endian {elf.machine} {elf.type}"
    if inspection.kind == "variants":
        return f"{count(len(inspection.variants), 'variant')} of a release"
    if inspection.kind == "tree" and contents is not None:
        return f"{count(contents.files, 'file')}, {contents.binaries} of them ELF"
    return inspection.kind


def _sections(inspection: Inspection) -> Iterator[Section]:
    kind, contents = inspection.kind, inspection.contents
    if kind == "elf":
        yield from _elf(inspection.binaries[0].elf)
    if kind == "wheel":
        for item in inspection.distributions:
            yield _fields(
                ("distribution", f"{item.name} {item.version}"),
                ("installed", f"{count(item.files, 'file')}, {size(item.size)}"),
            )
            yield _list("requires", item.requires)
        yield from _variants(inspection)
    if contents is not None:
        yield from _contents(contents)
    if kind in ("tree", "variants"):
        yield from _variants(inspection)
    if kind in ("wheel", "archive"):
        binaries = sorted(inspection.binaries, key=lambda binary: (-binary.size, binary.path))
        yield _list("binaries", map(_binary, binaries))
    if kind == "wheel":
        kinds = Counter(artefact.kind for artefact in inspection.artefacts)
        others = (f"{number} {name}" for name, number in kinds.items())
        yield _list("other files of compilers and devices", others)
    if kind not in ("tree", "variants"):
        opinion = list(_opinion(inspection)) or ["nothing in it belongs to a vendor"]
        yield sentences("opinion", "the catalogue's opinion", opinion)
    unread = (
        f"{item.path}: {item.why}" if kind in ("wheel", "tree") else item.why
        for item in inspection.unread
    )
    yield sentences("unread", "not read", unread)


def _fields(*fields: tuple[str, str | None]) -> Section:
    return sentences("fields", "", (f"{name}: {value}" for name, value in fields if value))


def _list(title: str, items: Iterable[str]) -> Section:
    """The first items of a list, and how many more there are."""
    lines = list(items)
    more = [f"and {len(lines) - _SHOWN} more (--format json has all)"] if lines[_SHOWN:] else []
    return sentences(title, title, [*lines[:_SHOWN], *more])


# One ELF object


def _elf_fields(elf: Elf) -> Section:
    return _fields(
        ("soname", elf.soname),
        ("build-id", elf.build_id),
        ("interpreter", elf.interpreter),
        ("RPATH", ":".join(elf.rpath)),
        ("RUNPATH", ":".join(elf.runpath)),
        ("flags", " ".join(name for bit, name in _FLAGS.items() if elf.flags_1 & bit)),
        ("ABI tag", elf.abi_tag),
        ("needs", elf.isa_needed),
        ("uses", elf.isa_used),
    )


def _imports(elf: Elf, imports: Sequence[Imports], width: int, paint: Painter) -> Iterator[str]:
    by_library = {item.library: item.symbols for item in imports}
    libraries = dict.fromkeys((*elf.needed, *by_library))
    if libraries:
        yield "  " + paint("NEEDED, with the symbols imported by version", "bold")
    for library in libraries:
        symbols = by_library.get(library, ())
        name = "of an unknown library (no symbol version)" if library is None else library
        yield f"    {printable(name)}" + (f"  {count(len(symbols), 'symbol')}" if symbols else "")
        yield from wrapped(listing(symbols, _SHOWN), width, " " * 6, " " * 8)


def _elf(elf: Elf) -> Iterator[Section]:
    yield sentences(
        "versions",
        "version needs",
        (f"{need.library}: {', '.join(need.versions)}" for need in elf.version_needs),
    )
    on_disk = [section for section in elf.sections if not section.nobits]
    largest = sorted(on_disk, key=lambda section: -section.size)[:_LARGEST_SECTIONS]
    telling = {*_TELLING, *(code.section for code in elf.device_code)}
    yield _list(
        "sections",
        (
            f"{section.name}  {size(section.size)} at {section.offset:#x}"
            for section in elf.sections
            if section in largest or section.name in telling
        ),
    )
    yield sentences("code", "device code", _device_code(elf))
    yield _list(
        "declared dlopen",
        (f"{' or '.join(note.sonames)} ({note.priority})" for note in elf.dlopen_notes),
    )
    yield _list("library names in its data", dict.fromkeys(item.text for item in elf.literals))
    yield _list("signs of static libraries", (mark.name for mark in elf.marks))


def _device_code(elf: Elf) -> Iterator[str]:
    for code in elf.device_code:
        arch = code.arch or f"architecture unknown ({code.note or 'the bytes do not say'})"
        packed = f", {code.compressed} compressed" if code.compressed else ""
        where = f" in {code.section}" if code.section else ""
        yield f"{code.format} {code.kind} {arch}: {code.count} x, {size(code.size)}{packed}{where}"


# Contents of a wheel, an image or a tree


def _contents(contents: Contents) -> Iterator[Section]:
    shares = [_share(share) for share in contents.shares]
    yield sentences("shares", "by vendor and role", shares or ["nothing of a vendor"])
    if len(contents.distributions) > 1:
        yield sentences("distributions", "by distribution", _distributions(contents))
    yield sentences("layers", "by layer", _layers(contents))
    where = f", for {contents.machines.name}" if contents.machines is not None else ""
    title = f"device code by architecture{where}"
    yield sentences("architectures", title, _architectures(contents))


def _share(share: Share) -> str:
    names = listing(share.architectures, _ARCHITECTURES, " ")
    return (
        f"{share.vendor} {share.role} ({share.backend}): "
        + (f"{size(share.size)} in " if share.size else "linked statically into ")
        + count(share.files, "file")
        + (f"; {names}" if names else "")
    )


def _distributions(contents: Contents) -> Iterator[str]:
    for item in contents.distributions[:_MAX_LISTED]:
        name = f"{item.name} {item.version}" if item.name else "owned by no distribution"
        yield f"{name}  {size(item.size)}{_backends(item.backends)}"
    rest = contents.distributions[_MAX_LISTED:]
    if rest:
        yield f"and {len(rest)} more with {size(sum(item.size for item in rest))}"


def _layers(contents: Contents) -> Iterator[str]:
    for number, layer in enumerate(contents.layers, 1):
        text = cut(made_by(layer.instruction), _INSTRUCTION)
        hidden = f", {size(layer.hidden)} of it hidden by later layers" if layer.hidden else ""
        yield f"{number}  {size(layer.size)}{hidden}{_backends(layer.backends)}: {text}"


def _backends(backends: Mapping[str, int]) -> str:
    parts = [f"{name} {size(bytes_)}" for name, bytes_ in backends.items() if bytes_]
    return f" ({', '.join(parts)})" if parts else ""


def _architectures(contents: Contents) -> Iterator[str]:
    useless = sum(item.size for item in contents.architectures if item.use == "none")
    for item in contents.architectures:
        use = _LINKED if item.use == "jit" and item.kind == "lto-ir" else _USE[item.use]
        name = f"{item.backend} {item.arch or 'architecture unknown'} {item.kind}"
        yield f"{name}  {size(item.size)} in {count(item.files, 'file')}{use}"
    if useless:
        yield f"{size(useless)} in all are not usable there"


def _variants(inspection: Inspection) -> Iterator[Section]:
    for variant in inspection.variants:
        uses = (
            f"{use.machines}: {use.use.replace('-', ' ')}"
            + (f" ({use.reason})" if use.reason else "")
            for use in variant.uses
        )
        of = f" of {variant.distribution}" if inspection.kind == "tree" else ""
        properties = variant.properties or ("without properties: it fits everywhere",)
        yield sentences("variant", f"variant {variant.label}{of}", [*properties, *uses])


# Both


def _binary(binary: Binary) -> str:
    needed = ", ".join(binary.elf.needed) or "nothing"
    return f"{binary.path}  {size(binary.size)}; needs {needed}"


def _opinion(inspection: Inspection) -> Iterator[str]:
    """The catalogue's evidence; what many files of a wheel or an archive give is said once."""
    has_paths = inspection.kind in ("wheel", "archive")
    paths: dict[str, list[str]] = {}
    for item in inspection.evidence:
        line = (
            f"{item.vendor} ({item.backend}) {item.role}, {item.kind}: {item.detail} "
            f"[{item.weight}, confidence {item.confidence}]"
        )
        if not has_paths:
            yield line
        paths.setdefault(line, []).append(item.path)
    for line, (first, *others) in paths.items() if has_paths else ():
        yield f"{line} {first}" + (f" and {count(len(others), 'more file')}" if others else "")
