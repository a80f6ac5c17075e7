"""Tree → inventory: everything that buildmatrix knows about a tree is read here, once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, Protocol

from buildmatrix.binaries import devicefile
from buildmatrix.binaries.model import DeviceFile, Elf
from buildmatrix.binaries.reader import Malformed, read_elf
from buildmatrix.inventory.distributions import Ownership, read_distributions
from buildmatrix.inventory.folders import folders, one_name_each
from buildmatrix.inventory.listing import AskedNames, Listing
from buildmatrix.inventory.mattering import LARGE_CONTAINER
from buildmatrix.inventory.model import (
    PACKAGES,
    Artefact,
    Binary,
    ClosedFile,
    Container,
    Inventory,
    Link,
    Statements,
    Stats,
    SystemPackage,
)
from buildmatrix.inventory.nested import (
    SEPARATOR,
    NestedContents,
    look_inside,
    planned,
    recognised,
    recognised_behind,
)
from buildmatrix.inventory.python_loading import read_python
from buildmatrix.inventory.python_memory import PythonMemory
from buildmatrix.inventory.python_path import python_paths
from buildmatrix.inventory.system import (
    LD_SO_CACHE,
    library_folders,
    loader_cache,
    musl_folders,
    preloaded,
    system_packages,
)
from buildmatrix.inventory.system_files import packaged
from buildmatrix.inventory.workers import Watch, spread, unwatched
from buildmatrix.python_imports.source import (
    LARGEST_SEARCHED,
    Outline,
    compiled_outline,
    is_sourceless,
    outline,
)
from buildmatrix.python_imports.statements import Stated, is_stating, stated
from buildmatrix.trees import containers
from buildmatrix.trees.base import File, RandomAccess, Tree, defect, reason
from buildmatrix.trees.inflating import Inflated

ELF_MAGIC = b"\x7fELF"
#: `libx.so`, `libx.so.12`, `ld-linux-x86-64.so.2`: the names that a loader looks for.
_LIBRARY_NAME = re.compile(r"\.so(\.|$)")

#: What the records of the system's packages are called where no single record is meant.
_SYSTEM = "packages of the system"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the bytes of one file are: at most one of the first four is set.

    A program may have a container behind it.
    """

    elf: Elf | None = None
    outline: Outline | None = None
    device: DeviceFile | None = None
    unread: str | None = None
    contents: NestedContents | None = None
    #: What says that it may matter, where it was not looked at; see `ClosedFile.by`.
    closed: Literal["name", "bytes", "size"] | None = None
    #: Of a file with an outline that is named after what it says.
    stated: Stated | None = None
    #: What it cost in this scan; 0 for what was recalled.
    bytes_read: int = 0


class FactMemory(Protocol):
    """Facts of the files of a tree from earlier scans; `buildmatrix.store` has one that lasts."""

    def recall(self, file: File) -> FileFacts | None:
        """The facts of `file` when it had these bytes; None when they are not known."""

    def keep(self, file: File, facts: FileFacts) -> None:
        """Remember the facts of `file`; called for all files, also those just recalled."""


def collect(
    tree: Tree,
    environment: Mapping[str, str] = MappingProxyType({}),
    memory: FactMemory | None = None,
    python_memory: PythonMemory | None = None,
    labels: Mapping[str, str] = MappingProxyType({}),
    watch: Watch = unwatched,
    asked: AskedNames | None = None,
) -> Inventory:
    """All facts of `tree`; `environment` and `labels` are those of the image's configuration.

    Files that `memory` recalls are not opened again, and the Python files of distributions that
    `python_memory` knows are not followed again. `watch` is told of how many files are looked at,
    and of containers among them once more as they are opened. `asked` takes what was looked for.
    What could not be read is in `Inventory.unread`. Raises OSError only when the root itself cannot
    be listed.
    """
    started = time.monotonic()
    listing = Listing(tree, asked)
    distributions, ownership = read_distributions(listing)
    no_packages: tuple[SystemPackage, ...] = ()
    packages = listing.attempt(_SYSTEM, lambda: system_packages(listing), no_packages)
    paths = python_paths(listing, environment)
    primary, hard_links = one_name_each(listing, ownership, paths)
    files = _read_files(listing, primary, ownership, memory, watch)
    binaries = files.binaries
    loadable = [item for item in binaries if item.container is None]
    artefact_paths = [artefact.path for artefact in files.artefacts if artefact.container is None]
    python = read_python(
        listing,
        ownership,
        distributions,
        [item.path for item in loadable],
        files.outlines,
        python_memory,
    )
    mattering = {
        *(item.path for item in loadable),
        *artefact_paths,
        *(container.path for container in files.containers),
        *(distribution.path for distribution in distributions),
        *(load.path for load in python.loads),
    }
    return Inventory(
        distributions=distributions,
        binaries=tuple(python.reached(binary) for binary in binaries),
        artefacts=tuple(files.artefacts),
        containers=tuple(files.containers),
        closed=tuple(files.closed),
        folders=folders(listing, hard_links),
        python_loads=python.loads,
        python_imports=python.imports,
        unparsed=python.unparsed,
        statements=tuple(files.statements),
        python_paths=paths,
        links=tuple(_library_links(listing, loadable, artefact_paths, hard_links)),
        system_packages=packages,
        packaged=listing.attempt(
            _SYSTEM, lambda: packaged(listing, packages, mattering), dict[str, str]()
        ),
        shared_paths=ownership.shared,
        library_folders=library_folders(listing),
        loader_cache=listing.attempt(LD_SO_CACHE, lambda: loader_cache(listing), None),
        preload=preloaded(listing),
        musl_folders=musl_folders(listing),
        environment=dict(sorted(environment.items())),
        labels=dict(sorted(labels.items())),
        unread=tuple(sorted(set(listing.unread), key=lambda entry: (entry.path, entry.why))),
        stats=Stats(
            files=len(listing.files),
            binaries=len(loadable),
            bytes_total=sum(listing.files[path].size for path in primary),
            bytes_read=listing.bytes_read,
            seconds=round(time.monotonic() - started, 3),
            cached=files.recalled,
        ),
    )


@dataclass(slots=True)
class _Files:
    """What the files of a tree are, in the order of their paths."""

    binaries: list[Binary] = field(default_factory=list)
    artefacts: list[Artefact] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    closed: list[ClosedFile] = field(default_factory=list)
    outlines: dict[str, Outline] = field(default_factory=dict)
    statements: list[Statements] = field(default_factory=list)
    #: How many of them came from earlier scans.
    recalled: int = 0

    def add_contents(
        self, path: str, size: int, owner: str | None, contents: NestedContents
    ) -> None:
        """What the container at `path` holds."""
        if contents.members or contents.closed or contents.kind in PACKAGES:
            kind, files, closed = contents.kind, contents.files, contents.closed
            self.containers.append(Container(path, size, kind, owner, files, closed))
        for nested in contents.members:
            inner = f"{path}{SEPARATOR}{nested.name}"
            if nested.elf is not None:
                self.binaries.append(
                    Binary(
                        inner, nested.size, nested.elf, owner, packed=nested.packed, container=path
                    )
                )
            elif (device := nested.device) is not None:
                code, marks = device.device_code, device.marks
                self.artefacts.append(
                    Artefact(
                        inner,
                        nested.size,
                        device.kind,
                        owner,
                        code,
                        marks,
                        packed=nested.packed,
                        container=path,
                        version=device.version,
                    )
                )


def _read_files(
    listing: Listing,
    paths: list[str],
    ownership: Ownership,
    memory: FactMemory | None,
    watch: Watch,
) -> _Files:
    """What the files at `paths` are; what could not be read is noted.

    The facts of single files are freed on return: the next step forks.
    """
    facts = {} if memory is None else _recalled(listing, paths, memory)
    files = _Files(recalled=len(facts))
    facts |= _inspect_all(listing, [path for path in paths if path not in facts], watch)
    facts |= _contents(listing, facts, watch)
    for path in paths:
        file_facts, file = facts[path], listing.files[path]
        if memory is not None:
            memory.keep(file, file_facts)
        listing.bytes_read += file_facts.bytes_read
        owner = ownership.owners.get(path)
        unread: tuple[str, ...] = ()
        if file_facts.unread is not None:
            unread = (file_facts.unread,)
        elif (elf := file_facts.elf) is not None:
            files.binaries.append(Binary(path, file.size, elf, owner, packed=file.packed))
            unread = elf.unread
        elif file_facts.outline is not None:
            # Python takes the source where there is one.
            if not (is_sourceless(path) and path.removesuffix("c") in listing.files):
                files.outlines[path] = file_facts.outline
            if file_facts.stated and owner is not None:
                files.statements.append(Statements(path, file_facts.stated, owner))
        elif (device := file_facts.device) is not None:
            files.artefacts.append(
                Artefact(
                    path,
                    file.size,
                    device.kind,
                    owner,
                    device.device_code,
                    device.marks,
                    version=device.version,
                )
            )
            unread = device.unread
        if file_facts.closed is not None:
            files.closed.append(ClosedFile(path, file.size, owner, file_facts.closed))
        if file_facts.contents is not None:
            files.add_contents(path, file.size, owner, file_facts.contents)
            if file_facts.contents.closed is not None and file.size >= LARGE_CONTAINER:
                unread = (
                    *unread,
                    f"not all of what it holds is known: {file_facts.contents.closed}",
                )
        for why in unread:
            listing.note(path, why)
    return files


def _recalled(listing: Listing, paths: list[str], memory: FactMemory) -> dict[str, FileFacts]:
    """What is known already of the files at `paths`."""
    recalled = ((path, memory.recall(listing.files[path])) for path in paths)
    return {path: facts for path, facts in recalled if facts is not None}


def _inspect_all(listing: Listing, paths: list[str], watch: Watch) -> dict[str, FileFacts]:
    """What each of `paths` is; containers are recognized."""
    files = [listing.files[path] for path in paths]
    results = spread(
        lambda index: inspect(listing.tree, files[index]), [file.size for file in files], watch
    )
    return dict(zip(paths, results, strict=True))


def _contents(
    listing: Listing, facts: Mapping[str, FileFacts], watch: Watch
) -> dict[str, FileFacts]:
    """The facts of the containers among `facts` with what they hold."""
    waiting = {
        path: (listing.files[path].size, item.contents)
        for path, item in facts.items()
        if item.contents is not None and item.contents.waiting is not None
    }
    if not waiting:
        return {}
    chosen, unopened = planned(waiting)
    contents = {
        path: replace(waiting[path][1], waiting=None, is_ahead=False)
        for path in chosen
        if waiting[path][1].is_ahead
    }
    still = [path for path in chosen if path not in contents]
    inside = spread(
        lambda index: opened(listing.tree, listing.files[still[index]], facts[still[index]]),
        [listing.files[path].size for path in still],
        watch,
    )
    contents |= unopened
    return {
        **dict(zip(still, inside, strict=True)),
        **{
            path: replace(facts[path], contents=nested_contents)
            for path, nested_contents in contents.items()
        },
    }


def opened(tree: Tree, file: File, facts: FileFacts) -> FileFacts:
    """`facts` of `file` of `tree`, with what it holds where it is a container."""
    try:
        with tree.open(file.path) as source:
            return with_contents(facts, source, file.path, file.size)
    except OSError as error:
        why = reason(error)
    except Exception as error:
        why = defect(error)
    kind = facts.contents.kind if facts.contents is not None else ""
    return replace(facts, contents=NestedContents(kind, closed=why))


def with_contents(facts: FileFacts, source: RandomAccess, path: str, size: int) -> FileFacts:
    """`facts` with what the file holds, where it is a container that was not opened yet."""
    if facts.contents is None or facts.contents.waiting is None:
        return facts
    before = source.bytes_read
    contents = look_inside(source, path, size, facts.contents.waiting)
    bytes_read = facts.bytes_read + source.bytes_read - before
    return replace(facts, contents=contents, bytes_read=bytes_read)


def inspect(tree: Tree, file: File) -> FileFacts:
    """What `file` of `tree` is; trouble with its bytes is part of the result."""
    if file.size < len(ELF_MAGIC):
        return FileFacts()
    try:
        with tree.open(file.path) as source:
            return look(source, file.path, file.size)
    except OSError as error:
        return FileFacts(unread=reason(error))
    except Exception as error:
        return FileFacts(unread=defect(error))


def look(source: RandomAccess, path: str, size: int, *, nested: bool = False) -> FileFacts:
    """What the file at `path` is, whose `size` bytes `source` has. Raises OSError.

    An `Inflated` source is read as far as it takes to see that it is nothing, or to its end. A
    container is recognised, unless the file is itself `nested` in one; see `with_contents`.
    """
    if path.endswith(".py"):
        facts = python_facts(path, source.read(0, min(size, LARGEST_SEARCHED)))
        if size > LARGEST_SEARCHED and facts.outline is not None:
            # It may load, in the part that was not looked at.
            facts = replace(facts, outline=replace(facts.outline, loads=True))
        return replace(facts, bytes_read=source.bytes_read)
    if is_sourceless(path):
        return FileFacts(
            outline=compiled_outline(source.read(0, min(size, LARGEST_SEARCHED))),
            bytes_read=source.bytes_read,
        )
    head = source.read(0, containers.HEAD)
    elf: Elf | None = None
    device: DeviceFile | None = None
    contents = None
    try:
        if not nested and not head.startswith(ELF_MAGIC):
            contents = recognised(source, head, size)
        if contents is not None:
            pass
        elif devicefile.kind_of(path, head) is not None:
            device = devicefile.read_device_file(source, size, path)
        elif head.startswith(ELF_MAGIC):
            elf = read_elf(source, size)
            if elf is not None and not nested:
                contents = recognised_behind(source, elf, size)
    except Malformed as error:
        return FileFacts(unread=error.reason, bytes_read=source.bytes_read)
    if isinstance(source, Inflated) and (elf or device):
        source.finish()
    return FileFacts(elf=elf, device=device, contents=contents, bytes_read=source.bytes_read)


def python_facts(path: str, text: bytes) -> FileFacts:
    """What the source of the Python file at `path` says."""
    return FileFacts(
        outline=outline(text), stated=stated(text) if is_stating(path, len(text)) else None
    )


def _library_links(
    listing: Listing, binaries: list[Binary], artefacts: list[str], hard_links: Mapping[str, str]
) -> Iterator[Link]:
    """The links without which the loader model would not find what the loader finds, sorted."""
    objects = {binary.path for binary in binaries}
    listed = objects.union(artefacts)
    hard = {path: target for path, target in hard_links.items() if target in listed}
    named = {path for path in listing.links if _LIBRARY_NAME.search(path.rpartition("/")[2])}
    with_libraries = _ancestors(objects | hard.keys() | named)
    for path in sorted({*listing.links, *hard}):
        if path in hard:
            yield Link(path, "/" + hard[path], hard=True)
        elif path in named or listing.paths.folder(path) in with_libraries:
            yield Link(path, listing.links[path])


def _ancestors(paths: set[str]) -> set[str]:
    """Every folder that one of `paths` lies below."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders
