"""Facts of one file and entries of the catalogue → evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from buildmatrix.catalogue.entries import CatalogueEntry, DeviceCodeEntry, SectionEntry
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.lookup import LibraryMatch, common_names, distribution, library
from buildmatrix.catalogue.model import (
    Confidence,
    DistributionMatch,
    Evidence,
    EvidenceKind,
    Weight,
    Where,
    demangle,
    library_names,
    library_patterns,
    matches_any,
    opened_library,
)
from buildmatrix.facts.elf.model import DeviceCode, Mark, Section
from buildmatrix.facts.inventory.model import Artefact, Binary, ClosedFile, PythonLoad

#: Confidence of contradicted evidence.
LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}

File = Binary | Artefact | ClosedFile

#: Default roles of evidence.
KERNEL_ROLE = "kernel"
#: Device code in a static archive, which only a linker uses.
LINKED_ROLE = "link"
#: Roles by the kind of file; any other file is loaded as it is. Code for an interface has the role
#: of the interface's backend, whichever driver compiled it.
_ROLES = {"a": LINKED_ROLE, "bc": "compiler", "vkcache": "vulkan"}
FOLDER_ROLE = "folder"


class FileMatcher:
    """Yields the evidence of files, one by one; holds their shared state."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        #: Most names occur in many files: `libc.so.6`, `libcudart.so.12`.
        self._libraries: dict[str, tuple[LibraryMatch, ...]] = {}
        #: Owners of files → what the catalogue knows of them.
        self._owners: dict[str, DistributionMatch | None] = {}

    def binary(self, binary: Binary) -> Iterator[Evidence]:
        """Yield the evidence of one ELF file."""
        itself = [
            *self._bundled(binary),
            *self._tool(binary),
            *self._device_code(binary, _loadable(binary)),
            *self._unread_device_code(binary),
        ]
        yield from itself or self._in_folder(binary)
        yield from self._static(binary, binary.elf.marks, _own_names(binary))
        if binary.container is None:
            # A packed file's needs matter where it is unpacked, and that place is unknown.
            yield from self._needed(binary)
            yield from self._dlopen(binary)

    def artefact(self, artefact: Artefact) -> Iterator[Evidence]:
        """Yield the evidence of one file that is not ELF."""
        name = file_name(artefact)
        named = list(self._library_file(artefact, name))
        if any(item.weight == "strong" for item in named):
            held = []
        else:
            # The content of a static archive is better evidence than its name.
            held = [
                *self._device_code(artefact, artefact.device_code),
                *self._static(artefact, artefact.marks, {demangle(name)}),
            ]
        yield from list(self._tool(artefact)) or held or named or self._in_folder(artefact)

    def closed(self, file: ClosedFile) -> Iterator[Evidence]:
        """Yield evidence from the name of an unopened file; less certain than its bytes."""
        yield from (
            list(self._tool(file))
            or list(self._library_file(file, file_name(file)))
            or self._in_folder(file)
        )

    def python_load(self, load: PythonLoad) -> Iterator[Evidence]:
        """Yield the libraries that a call in a Python file names.

        A name with a part that is only known at run time is weaker evidence, and so is a call that
        no import reaches.
        """
        on_import = load.reach in ("import", "guarded")
        names = (opened_library(load.call, text) for text in load.names)
        for name in dict.fromkeys(name for name in names if name is not None):
            # A search matches any version, and an import that fails without it needs one of them.
            bare = name.removesuffix("*") if name.endswith(".so*") else name
            computed = "*" in (bare if load.call == "find_library" else name)
            for match in self._library(bare):
                sure = match.owned.confidence
                yield from self._evidence(
                    "python-dlopen",
                    load,
                    match,
                    name=bare,
                    detail=name,
                    weight="weak" if computed or not on_import else match.weight,
                    confidence=LOWER[sure] if computed else sure,
                )

    # The file itself

    def _bundled(self, binary: Binary) -> Iterator[Evidence]:
        """Yield the vendor of a library, by its SONAME, else by its file name."""
        soname = binary.elf.soname
        by_soname = list(self._library_file(binary, soname)) if soname else []
        yield from by_soname or self._library_file(binary, file_name(binary))

    def _library_file(self, file: File, name: str) -> Iterator[Evidence]:
        shown, canonical = file_name(file), demangle(name)
        for match in library(name, file.path, self._catalogue):
            yield from self._evidence(
                "bundled",
                file,
                match,
                name=canonical,
                detail=shown if shown == canonical else f"{shown} ({canonical})",
                weight=match.weight,
                confidence=LOWER[match.owned.confidence] if isinstance(file, ClosedFile) else None,
                size=_stored_size(file, file.size),
            )

    def _tool(self, file: File) -> Iterator[Evidence]:
        name = file_name(file)
        for owned in self._catalogue.tools.find(name)[:1]:
            yield from self._evidence(
                "tool",
                file,
                owned,
                detail=name,
                role=owned.entry.role,
                where=owned.entry.where,
                weight=owned.entry.weight,
                size=_stored_size(file, file.size),
            )

    def _in_folder(self, file: File) -> Iterator[Evidence]:
        """Yield evidence for an unrecognized file in a folder that belongs to one backend."""
        name = file_name(file)
        if any(
            owned.entry.weight == "neutral"
            for candidate in library_names(name)
            for owned in self._catalogue.libraries.find(candidate)
        ):
            return
        for owned in self._catalogue.roots.find(file.path)[:1]:
            yield from self._evidence(
                "bundled",
                file,
                owned,
                detail=name,
                role=FOLDER_ROLE,
                weight="weak",
                size=_stored_size(file, file.size),
            )

    # Device code

    def _device_code(self, file: File, device_code: Iterable[DeviceCode]) -> Iterator[Evidence]:
        """Yield one evidence per backend and weight. Bitcode is a tool: compilers link it."""
        kind = file.kind if isinstance(file, Artefact) else None
        name = file_name(file)
        groups: dict[tuple[str, Weight], tuple[Owned[DeviceCodeEntry], list[DeviceCode]]] = {}
        for code in device_code:
            owned = _owner(code, self._catalogue.device_code)
            if owned is not None:
                key = owned.backend, owned.entry.weight
                groups.setdefault(key, (owned, []))[1].append(code)
        for owned, codes in groups.values():
            first = min(codes, key=lambda code: code.offset)
            # Sections for device code have no other use: padding and headers count.
            sections = [
                section.size for section, of in self._sections(file) if of.backend == owned.backend
            ]
            architectures = tuple(sorted({code.arch for code in codes if code.arch is not None}))
            strong = owned.entry.weight == "strong"
            where = f".{kind} file" if kind else (strong and first.section) or first.format
            yield from self._evidence(
                "tool" if kind == "bc" else "device-code",
                file,
                owned,
                name=name,
                detail=name
                if kind == "bc"
                else f"{where}: {' '.join(architectures) or 'architectures unknown'}",
                role=_ROLES.get(kind or "", KERNEL_ROLE),
                weight=owned.entry.weight,
                offset=first.offset,
                size=_stored_size(
                    file, max(sum(sections) if strong else 0, sum(code.size for code in codes))
                ),
                # Weak code serves no GPU: it must not stand in for missing kernels.
                architectures=architectures if strong else (),
            )

    def _unread_device_code(self, binary: Binary) -> Iterator[Evidence]:
        """Yield sections for device code in a file where none could be read."""
        if binary.elf.device_code or binary.elf.type == "rel":
            return
        for section, owned in self._sections(binary):
            yield from self._evidence(
                "device-code",
                binary,
                owned,
                name=file_name(binary),
                detail=f"{section.name}: not read",
                role=KERNEL_ROLE,
                weight=owned.entry.weight,
                offset=section.offset,
                size=section.size,
            )

    def _sections(self, file: File) -> Iterator[tuple[Section, Owned[SectionEntry]]]:
        """Yield sections that hold only device code by convention, each with its owner."""
        for section in file.elf.sections if isinstance(file, Binary) else ():
            if section.size and not section.nobits:
                for owned in self._catalogue.sections.find(section.name)[:1]:
                    yield section, owned

    # What the file asks for

    def _needed(self, binary: Binary) -> Iterator[Evidence]:
        """Yield the libraries that the file links.

        A common name counts beside one of the same backend alone. If the dynamic section was not
        read, a name in its string table is a trace and no proof: the table also has the file's own
        name and versions of symbols.
        """
        is_read = binary.elf.dynamic_read
        own = _own_names(binary)
        names = (
            binary.elf.needed
            if is_read
            else [name for name in binary.elf.linked_names if demangle(name) not in own]
        )
        sure = {
            match.owned.backend
            for name in names
            for match in self._library(name)
            if match.weight == "strong"
        }
        for name in names:
            for match in self._library(name) or common_names(name, sure, self._catalogue):
                yield from self._evidence(
                    "needed",
                    binary,
                    match,
                    name=demangle(name),
                    detail=name,
                    weight=match.weight if is_read else "weak",
                    confidence=None if is_read else "low",
                )

    def _static(
        self, file: File, file_marks: Iterable[Mark], names: set[str]
    ) -> Iterator[Evidence]:
        """Yield runtimes that were linked statically; a library does not contain itself."""
        places = {mark.name: mark.offset for mark in file_marks}
        for owned in self._catalogue.static if places else ():
            entry = owned.entry
            marks = [mark for mark in places if mark in entry.marks]
            if not marks or _any_library(entry.shared, names):
                continue
            yield from self._evidence(
                "static",
                file,
                owned,
                name=entry.name,
                detail=f"{entry.name} ({', '.join(marks)})",
                role=entry.role,
                weight=entry.weight,
                offset=min(places[mark] for mark in marks),
                size=_stored_size(file, min(entry.size, file.size)),
            )

    def _dlopen(self, binary: Binary) -> Iterator[Evidence]:
        """Yield library names in data and code, unless the file needs that library or is it.

        A name inside a sentence or a list is weaker than one that could be passed on as it is. In a
        table of Rust or Go every name can be, but its end is unknown.
        """
        linked = (*binary.elf.needed, *binary.elf.linked_names)
        excluded = {demangle(name) for name in linked} | _own_names(binary)
        for literal in sorted(
            binary.elf.literals, key=lambda literal: (not literal.exact, not literal.packed)
        ):
            name = literal.text.rpartition("/")[2]
            if demangle(name) in excluded:
                continue
            excluded.add(demangle(name))
            for match in self._library(name):
                sure = match.owned.confidence
                yield from self._evidence(
                    "dlopen",
                    binary,
                    match,
                    name=demangle(name),
                    detail=literal.text,
                    weight=match.weight if literal.exact or literal.packed else "weak",
                    confidence=sure if literal.exact else LOWER[sure],
                    offset=literal.offset,
                )

    # In common

    def _evidence(
        self,
        kind: EvidenceKind,
        file: File | PythonLoad,
        owned: Owned[CatalogueEntry] | LibraryMatch,
        *,
        detail: str,
        weight: Weight,
        name: str = "",
        role: str = "",
        where: Where = "image",
        confidence: Confidence | None = None,
        offset: int | None = None,
        size: int = 0,
        architectures: tuple[str, ...] = (),
    ) -> Iterator[Evidence]:
        """Yield the evidence, changed or removed by the exceptions that cover it.

        `name` is its name in exceptions, if that is not `detail`: the named library, or the file
        itself. Libraries have the role and the place of their entry, and its toolkit.
        """
        toolkit = None
        if isinstance(owned, LibraryMatch):
            toolkit, owned = owned.toolkit, owned.owned
            role, where = owned.entry.role, owned.entry.where
        for exception in self._catalogue.exceptions:
            rule = exception.entry
            if (
                kind in rule.kinds
                and matches_any(rule.backends, owned.backend)
                and matches_any(rule.names, name or detail)
                and matches_any(rule.files, demangle(file_name(file)))
                and matches_any(rule.paths, file.path)
            ):
                if rule.weight is not None:
                    weight, confidence = rule.weight, LOWER[confidence or owned.confidence]
                where = rule.where or where
        if weight == "neutral" or owned.vendor is None:
            return
        yield Evidence(
            kind=kind,
            vendor=owned.vendor,
            backend=owned.backend,
            path=file.path,
            detail=detail,
            role=role,
            confidence=confidence or owned.confidence,
            where=where,
            weight=weight,
            toolkit=toolkit or self._owner_toolkit(file.owner, owned.backend),
            offset=offset,
            size=size,
            distribution=file.owner,
            architectures=architectures,
        )

    def _owner_toolkit(self, owner: str | None, backend: str) -> str | None:
        """Return the toolkit of the owning distribution, if that is of the same backend.

        `libcurand.so.10` is the same name in three toolkits; `nvidia-curand-cu12` is in one.
        """
        if owner is None:
            return None
        if owner not in self._owners:
            name, _, version = owner.partition("==")
            self._owners[owner] = distribution(name, version, self._catalogue)
        match = self._owners[owner]
        return match.toolkit if match is not None and match.backend == backend else None

    def _library(self, name: str) -> tuple[LibraryMatch, ...]:
        if name not in self._libraries:
            self._libraries[name] = library(name, None, self._catalogue)
        return self._libraries[name]


def file_name(file: File | PythonLoad) -> str:
    """Return the last part of the path of a file."""
    return file.path.rpartition("/")[2]


def _stored_size(file: File, size: int) -> int:
    """Return the bytes that `size` bytes of a file take on disk: containers pack them."""
    if isinstance(file, ClosedFile) or file.container is None or file.packed is None:
        return size
    return min(size, file.packed)


def _loadable(binary: Binary) -> Iterator[DeviceCode]:
    """Return the device code of a file. Objects for the linker (`.o`) are not loaded."""
    for code in binary.elf.device_code:
        if binary.elf.type != "rel" or code.format == "elf":
            yield code


def _own_names(binary: Binary) -> set[str]:
    names = {demangle(file_name(binary))}
    if binary.elf.soname:
        names.add(demangle(binary.elf.soname))
    return names


def _any_library(globs: Sequence[str], names: set[str]) -> bool:
    """Return True if one of `names` is a library matched by `globs`, in any version."""
    patterns = [pattern for glob in globs for pattern in library_patterns(glob)]
    return any(
        matches_any(patterns, candidate) for name in names for candidate in library_names(name)
    )


def _owner(
    code: DeviceCode, entries: Sequence[Owned[DeviceCodeEntry]]
) -> Owned[DeviceCodeEntry] | None:
    """Return the entry with the vendor of device code; None without one, or if it is neutral."""
    fitting = [
        owned
        for owned in entries
        if matches_any(owned.entry.formats, code.format)
        and matches_any(owned.entry.kinds, code.kind)
        and (
            not owned.entry.architectures
            or (code.arch is not None and matches_any(owned.entry.architectures, code.arch))
        )
    ]
    if any(owned.entry.weight == "neutral" for owned in fitting):
        return None
    return fitting[0] if fitting else None
