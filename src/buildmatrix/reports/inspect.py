"""The report of `inspect`: facts of a file and contents of images and wheels, as data and text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.base.text import count, listing, printable, size
from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.binaries.model import Elf
from buildmatrix.facts.inventory.model import Artefact, Binary, Distribution, Unread
from buildmatrix.facts.symbols import Imports
from buildmatrix.reports.terminal import Painter, wrapped

# Data; JSON uses these names


@dataclass(frozen=True, slots=True)
class Share:
    """Share of one vendor in a wheel, in one role."""

    vendor: str
    backend: str
    role: str
    #: Bytes of the files that are the vendor's, and of its device code inside of others.
    size: int
    files: int
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Machines:
    """Requirements on the machine that runs it."""

    #: Source: a target and its node classes.
    name: str
    backend: str
    #: GPU architectures, `sm_90`, `gfx942`.
    archs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """One distribution, or with an empty name all files that none owns."""

    name: str
    version: str
    size: int
    #: Backend → bytes of its files and device code, the most first.
    backends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayerShare:
    """One layer of an image."""

    #: Instruction that made it; empty if the image does not record it.
    instruction: str
    size: int
    #: Bytes of it that later layers deleted or replaced.
    hidden: int
    #: Files of it that matter to an accelerator or to Python.
    files: int
    backends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Architecture:
    """Device code of one architecture, in all files together."""

    backend: str
    #: `sm_90`, `gfx942`; empty where the bytes do not say.
    arch: str
    #: As `facts.device_code.model.DeviceCode.kind`.
    kind: str
    size: int
    count: int
    files: int
    #: `native`, `jit` or `none` on the machines; empty where that is not known.
    use: str = ""


@dataclass(frozen=True, slots=True)
class VariantUse:
    """Use of a wheel variant by the machines of a node class, or of a target without any."""

    machines: str
    use: Literal["taken", "not-taken", "undecided"]
    #: Why it is not taken, or why that is unknown.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseVariant:
    """A wheel variant: that of a distribution, or one of a release on an index."""

    label: str
    #: `demo 1.0`; empty for those of a release.
    distribution: str
    #: `nvidia :: sm_arch :: 90_real`, sorted.
    properties: tuple[str, ...] = ()
    #: Nothing where no target was selected.
    uses: tuple[VariantUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """Totals of a wheel, an image or a tree."""

    files: int
    size: int
    binaries: int
    shares: tuple[Share, ...] = ()
    distributions: tuple[Holding, ...] = ()
    layers: tuple[LayerShare, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    machines: Machines | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
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


# Contents of a wheel, an image or a tree


#: Distributions that are listed by name; JSON has all.
_MAX_LISTED = 20
#: Architectures of a vendor's share that stand in its line; the list of them has all.
_ARCHITECTURES = 12
#: Characters of an instruction.
_INSTRUCTION = 120


def lists(contents: Contents) -> Iterator[tuple[str, list[str]]]:
    """Return titles and lines; empty parts are omitted."""
    yield (
        "by vendor and role",
        [share_line(share) for share in contents.shares] or ["nothing of a vendor"],
    )
    if len(contents.distributions) > 1:
        yield "by distribution", list(_distributions(contents))
    if contents.layers:
        yield "by layer", list(_layers(contents))
    if contents.architectures:
        yield _title(contents), list(_architectures(contents))


def share_line(share: Share) -> str:
    """One vendor in one role."""
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
        text = (
            " ".join(layer.instruction.split()) or "an instruction that the image does not record"
        )
        text = text if len(text) <= _INSTRUCTION else text[: _INSTRUCTION - 4] + " ..."
        hidden = f", {size(layer.hidden)} of it hidden by later layers" if layer.hidden else ""
        yield f"{number}  {size(layer.size)}{hidden}{_backends(layer.backends)}: {text}"


def _backends(backends: Mapping[str, int]) -> str:
    parts = [f"{name} {size(bytes_)}" for name, bytes_ in backends.items() if bytes_]
    return f" ({', '.join(parts)})" if parts else ""


def _title(contents: Contents) -> str:
    title = "device code by architecture"
    return title if contents.machines is None else f"{title}, for {contents.machines.name}"


def _architectures(contents: Contents) -> Iterator[str]:
    useless = sum(item.size for item in contents.architectures if item.use == "none")
    for item in contents.architectures:
        use = _LINKED if item.use == "jit" and item.kind == "lto-ir" else _USE[item.use]
        name = f"{item.backend} {item.arch or 'architecture unknown'} {item.kind}"
        yield f"{name}  {size(item.size)} in {count(item.files, 'file')}{use}"
    if useless:
        yield f"{size(useless)} in all are not usable there"


_USE = {
    "": "",
    "native": "",
    "jit": ": compiled by the driver when a program starts",
    "none": ": not usable there",
}
#: Intermediate code of link-time optimization, which the driver itself does not compile.
_LINKED = ": compiled when a program links it at run time"


# Text of an inspection


_INDENT = "  "
#: Sections that are shown although the catalogue is silent about them: the largest.
_LARGEST_SECTIONS = 6
#: Items of one list that are shown; JSON has them all.
_SHOWN = 12
#: Sections that say something whatever they hold.
_TELLING = (".note.dlopen", ".gnu_debugdata", ".nv_fatbin", ".hip_fatbin", "__nv_relfatbin")
# DT_FLAGS_1, as binutils spells them.
_FLAGS = {0x1: "NOW", 0x8: "NODELETE", 0x20: "NOOPEN", 0x80: "ORIGIN", 0x800: "NODEFLIB",
          0x08000000: "PIE"}  # fmt: skip


def render(inspections: Inspections, *, width: int, color: bool) -> str:
    """The inspections one after the other, wrapped at `width` columns."""
    writer = _InspectionWriter(max(width, 40), Painter(color))
    return "\n".join("\n".join(writer.lines(inspection)) + "\n" for inspection in inspections.files)


class _InspectionWriter:
    def __init__(self, width: int, paint: Painter) -> None:
        self._width = width
        self._paint = paint

    def lines(self, inspection: Inspection) -> Iterator[str]:
        head = f"{self._paint(printable(inspection.path), 'bold')}  {size(inspection.size)}"
        if inspection.kind == "elf":
            elf = inspection.binaries[0].elf
            yield f"{head}, {_format(elf)}"
            yield from self._elf(elf, inspection)
        elif inspection.kind == "archive":
            yield f"{head}, archive"
            yield from self._list("binaries", map(_binary, _by_size(inspection.binaries)))
        elif inspection.kind == "wheel":
            yield f"{head}, wheel"
            yield from self._wheel(inspection)
        elif inspection.kind == "variants":
            yield f"{head}, {count(len(inspection.variants), 'variant')} of a release"
            yield from self._variants(inspection)
        elif inspection.kind == "tree" and inspection.contents is not None:
            files, binaries = inspection.contents.files, inspection.contents.binaries
            yield f"{head}, {count(files, 'file')}, {binaries} of them ELF"
            for title, lines in lists(inspection.contents):
                yield from self._list(title, lines, most=None)
            yield from self._variants(inspection)
        else:
            yield f"{head}, {inspection.kind}"
        if inspection.kind not in ("tree", "variants"):
            yield from self._opinion(inspection)
        names_paths = inspection.kind in ("wheel", "tree")
        unread = [
            f"{item.path}: {item.why}" if names_paths else item.why for item in inspection.unread
        ]
        yield from self._list("not read", unread, most=None)

    # One ELF object

    def _elf(self, elf: Elf, inspection: Inspection) -> Iterator[str]:
        yield from self._fields(
            ("soname", elf.soname),
            ("build-id", elf.build_id),
            ("interpreter", elf.interpreter),
            ("RPATH", ":".join(elf.rpath) if elf.rpath else None),
            ("RUNPATH", ":".join(elf.runpath) if elf.runpath else None),
            ("flags", " ".join(name for bit, name in _FLAGS.items() if elf.flags_1 & bit)),
            ("ABI tag", elf.abi_tag),
            ("needs", elf.isa_needed),
            ("uses", elf.isa_used),
        )
        yield from self._imports(elf, inspection.imports)
        yield from self._list(
            "version needs",
            (f"{need.library}: {', '.join(need.versions)}" for need in elf.version_needs),
            most=None,
        )
        yield from self._list("sections", self._sections(elf))
        yield from self._list("device code", _device_code(elf), most=None)
        yield from self._list(
            "declared dlopen",
            (f"{' or '.join(note.sonames)} ({note.priority})" for note in elf.dlopen_notes),
        )
        names = dict.fromkeys(literal.text for literal in elf.literals)
        yield from self._list("library names in its data", names)
        yield from self._list("signs of static libraries", (mark.name for mark in elf.marks))

    def _imports(self, elf: Elf, imports: Sequence[Imports]) -> Iterator[str]:
        by_library = {item.library: item.symbols for item in imports}
        if elf.needed or imports:
            yield self._title("NEEDED, with the symbols imported by version")
        for library in dict.fromkeys((*elf.needed, *(item.library for item in imports))):
            symbols = by_library.get(library, ())
            name = (
                "of an unknown library (no symbol version)"
                if library is None
                else printable(library)
            )
            yield f"{_INDENT * 2}{name}" + (f"  {count(len(symbols), 'symbol')}" if symbols else "")
            if symbols:
                yield from self._wrapped(listing(symbols, _SHOWN), _INDENT * 3)

    def _sections(self, elf: Elf) -> Iterator[str]:
        on_disk = [section for section in elf.sections if not section.nobits]
        largest = sorted(on_disk, key=lambda section: -section.size)[:_LARGEST_SECTIONS]
        coded = {code.section for code in elf.device_code}
        for section in elf.sections:
            if section in largest or section.name in coded or section.name in _TELLING:
                yield f"{section.name}  {size(section.size)} at {section.offset:#x}"

    # A wheel

    def _wheel(self, inspection: Inspection) -> Iterator[str]:
        for item in inspection.distributions:
            yield from self._fields(
                ("distribution", f"{item.name} {item.version}"),
                ("installed", f"{count(item.files, 'file')}, {size(item.size)}"),
            )
            yield from self._list("requires", item.requires)
        yield from self._variants(inspection)
        for title, lines in lists(inspection.contents) if inspection.contents is not None else ():
            yield from self._list(title, lines, most=None)
        yield from self._list("binaries", map(_binary, _by_size(inspection.binaries)))
        kinds = Counter(artefact.kind for artefact in inspection.artefacts)
        yield from self._list(
            "other files of compilers and devices",
            (f"{number} {kind}" for kind, number in kinds.items()),
        )

    def _variants(self, inspection: Inspection) -> Iterator[str]:
        for variant in inspection.variants:
            lines = [
                *(variant.properties or ("without properties: it fits everywhere",)),
                *(
                    f"{use.machines}: {use.use.replace('-', ' ')}"
                    + (f" ({use.reason})" if use.reason else "")
                    for use in variant.uses
                ),
            ]
            of = f" of {variant.distribution}" if inspection.kind == "tree" else ""
            yield from self._list(f"variant {variant.label}{of}", lines, most=None)

    # Both

    def _opinion(self, inspection: Inspection) -> Iterator[str]:
        if inspection.kind in ("wheel", "archive"):
            lines = _together(inspection.evidence)
        else:
            lines = [_evidence_line(item) for item in inspection.evidence]
        nothing = ["nothing in it belongs to a vendor"]
        yield from self._list("the catalogue's opinion", lines or nothing, most=None)

    def _title(self, text: str) -> str:
        return _INDENT + self._paint(text, "bold")

    def _fields(self, *fields: tuple[str, str | None]) -> Iterator[str]:
        for name, value in fields:
            if value:
                yield from self._wrapped(f"{name}: {value}", _INDENT)

    def _list(self, title: str, items: Iterable[str], most: int | None = _SHOWN) -> Iterator[str]:
        lines = list(items)
        if not lines:
            return
        yield self._title(title)
        for line in lines[:most]:
            yield from self._wrapped(line, _INDENT * 2)
        if most is not None and len(lines) > most:
            yield f"{_INDENT * 2}and {len(lines) - most} more (--format json has all)"

    def _wrapped(self, text: str, indent: str) -> list[str]:
        return wrapped(text, self._width, indent, indent + _INDENT)


def _format(elf: Elf) -> str:
    order = "little" if elf.little_endian else "big"
    return f"ELF {elf.bits}-bit {order}-endian {elf.machine} {elf.type}"


def _device_code(elf: Elf) -> Iterator[str]:
    for code in elf.device_code:
        arch = code.arch or f"architecture unknown ({code.note or 'the bytes do not say'})"
        packed = f", {code.compressed} compressed" if code.compressed else ""
        where = f" in {code.section}" if code.section else ""
        yield f"{code.format} {code.kind} {arch}: {code.count} x, {size(code.size)}{packed}{where}"


def _binary(binary: Binary) -> str:
    needed = ", ".join(binary.elf.needed) or "nothing"
    return f"{binary.path}  {size(binary.size)}; needs {needed}"


def _by_size(binaries: Iterable[Binary]) -> list[Binary]:
    return sorted(binaries, key=lambda binary: (-binary.size, binary.path))


def _evidence_line(item: Evidence) -> str:
    return (
        f"{item.vendor} ({item.backend}) {item.role}, {item.kind}: {item.detail} "
        f"[{item.weight}, confidence {item.confidence}]"
    )


def _together(evidence: Sequence[Evidence]) -> list[str]:
    """Evidence that many files give is shown once."""
    groups: dict[str, list[str]] = {}
    for item in evidence:
        groups.setdefault(_evidence_line(item), []).append(item.path)
    return [
        f"{line} {paths[0]}" + (f" and {count(len(paths) - 1, 'more file')}" if paths[1:] else "")
        for line, paths in groups.items()
    ]
