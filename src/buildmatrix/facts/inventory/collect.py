"""Tree to inventory: all facts about a tree are read here, once."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from buildmatrix.facts.elf.model import DeviceFile, Elf
from buildmatrix.facts.inventory.archive import write_atomically
from buildmatrix.facts.inventory.conda import LARGEST_LOCK, LARGEST_MANIFEST
from buildmatrix.facts.inventory.conda import LARGEST_RECORD as LARGEST_CONDA_RECORD
from buildmatrix.facts.inventory.distributions import LARGEST as LARGEST_SBOM
from buildmatrix.facts.inventory.distributions import (
    LARGEST_METADATA,
    LARGEST_NOTE,
    LARGEST_RECORD,
    Ownership,
    read_distributions,
)
from buildmatrix.facts.inventory.file_facts import (
    MANY_FILES,
    SEPARATOR,
    FileFacts,
    NestedContents,
    inspect,
    open_container,
    plan_opening,
)
from buildmatrix.facts.inventory.folders import (
    LARGEST_FILE,
    choose_primary_paths,
    find_python_paths,
    sum_folders,
)
from buildmatrix.facts.inventory.listing import (
    LARGE_CONTAINER,
    LEAST,
    Listing,
    RecordedLookups,
    folders_above,
    may_hide,
    may_matter,
)
from buildmatrix.facts.inventory.memory import (
    FactMemory,
    PythonMemory,
    inspect_unless_known,
    is_known,
)
from buildmatrix.facts.inventory.model import (
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
    encode,
)
from buildmatrix.facts.inventory.python_loading import read_python
from buildmatrix.facts.inventory.rpm import LARGEST_DATABASE
from buildmatrix.facts.inventory.system import (
    LARGEST_CACHE,
    LARGEST_CONFIGURATION,
    LARGEST_LIST,
    LARGEST_STATUS,
    LD_SO_CACHE,
    find_packages,
    read_library_folders,
    read_loader_cache,
    read_musl_folders,
    read_operating_system,
    read_preload,
    read_system_packages,
)
from buildmatrix.facts.inventory.variants import LARGEST as LARGEST_VARIANT
from buildmatrix.facts.inventory.workers import Watch, ignore_progress, spread
from buildmatrix.facts.python_imports.source import LARGEST_SEARCHED, Outline, is_sourceless
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.facts.trees.base import File, Tree, reason

#: Names that a loader looks for: `libx.so`, `libx.so.12`, `ld-linux-x86-64.so.2`.
_LIBRARY_NAME = re.compile(r"\.so(\.|$)")

#: Bytes of the symbols of all binaries; a CUDA stack has 3 MB, a large image 10 MB.
MOST_SYMBOL_BYTES = 64 << 20

#: Path in notes about the records of system packages as a whole.
_SYSTEM = "packages of the system"


def collect(
    tree: Tree,
    environment: Mapping[str, str] = MappingProxyType({}),
    memory: FactMemory | None = None,
    python_memory: PythonMemory | None = None,
    labels: Mapping[str, str] = MappingProxyType({}),
    watch: Watch = ignore_progress,
    asked: RecordedLookups | None = None,
) -> Inventory:
    """Collect all facts of `tree`; `environment` and `labels` are the image configuration's.

    Files that `memory` recalls are not opened again, and the Python files of distributions that
    `python_memory` knows are not analyzed again. `watch` receives the number of files examined, and
    of containers a second time as they are opened. `asked` records lookups. Unreadable files are
    listed in `Inventory.unread`. Raises OSError only if the root itself cannot be listed.
    """
    started = time.monotonic()
    listing = Listing(tree, asked)
    distributions, ownership = read_distributions(listing)
    no_packages: tuple[SystemPackage, ...] = ()
    packages = listing.attempt(_SYSTEM, lambda: read_system_packages(listing), no_packages)
    paths = find_python_paths(listing, environment)
    primary, hard_links = choose_primary_paths(listing, ownership, paths)
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
        [folder for path in paths for folder in path.folders],
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
        binaries=tuple(python.add_reach(binary) for binary in binaries),
        artefacts=tuple(files.artefacts),
        containers=tuple(files.containers),
        closed=tuple(files.closed),
        folders=sum_folders(listing, hard_links),
        python_loads=python.loads,
        python_imports=python.imports,
        unparsed=python.unparsed,
        statements=tuple(files.statements),
        python_paths=paths,
        links=tuple(_find_library_links(listing, loadable, artefact_paths, hard_links)),
        operating_system=read_operating_system(listing),
        system_packages=packages,
        packaged=listing.attempt(
            _SYSTEM, lambda: find_packages(listing, packages, mattering), dict[str, str]()
        ),
        shared_paths=ownership.shared,
        library_folders=read_library_folders(listing),
        loader_cache=listing.attempt(LD_SO_CACHE, lambda: read_loader_cache(listing), None),
        preload=read_preload(listing),
        musl_folders=read_musl_folders(listing),
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
class _FileLists:
    """Facts of the files of a tree, in path order."""

    binaries: list[Binary] = field(default_factory=list)
    artefacts: list[Artefact] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    closed: list[ClosedFile] = field(default_factory=list)
    outlines: dict[str, Outline] = field(default_factory=dict)
    statements: list[Statements] = field(default_factory=list)
    #: Number of files with facts from earlier scans.
    recalled: int = 0
    #: Bytes of the symbols of all binaries.
    symbol_bytes: int = 0

    def limit_symbols(self, elf: Elf) -> Elf:
        """Return `elf`, without its symbols if the tree has too many."""
        if elf.binding is None:
            return elf
        names = sum(len(name) for need in elf.binding.needs for name in need.names)
        self.symbol_bytes += len(elf.binding.exports) + names
        return elf if self.symbol_bytes <= MOST_SYMBOL_BYTES else replace(elf, binding=None)

    def add_contents(
        self, path: str, size: int, owner: str | None, contents: NestedContents
    ) -> None:
        """Add the contents of the container at `path`."""
        if contents.members or contents.closed or contents.kind in PACKAGES:
            kind, files, closed = contents.kind, contents.files, contents.closed
            self.containers.append(Container(path, size, kind, owner, files, closed))
        for nested in contents.members:
            place = (f"{path}{SEPARATOR}{nested.name}", nested.size)
            if nested.elf is not None:
                # No loader looks into a container.
                elf = replace(nested.elf, binding=None)
                binary = Binary(*place, elf, owner, packed=nested.packed, container=path)
                self.binaries.append(binary)
            elif nested.device is not None:
                artefact = _make_artefact(*place, owner, nested.device)
                # Links of files in containers are not listed.
                artefact = replace(artefact, packed=nested.packed, container=path, links=())
                self.artefacts.append(artefact)


def _make_artefact(path: str, size: int, owner: str | None, device: DeviceFile) -> Artefact:
    about = (device.kind, owner, device.device_code, device.marks)
    return Artefact(path, size, *about, version=device.version, links=device.links)


def _read_files(
    listing: Listing,
    paths: list[str],
    ownership: Ownership,
    memory: FactMemory | None,
    watch: Watch,
) -> _FileLists:
    """Read the facts of the files at `paths`; unreadable ones are noted.

    Facts of single files are freed on return: the next step forks.
    """
    facts: dict[str, FileFacts] = {}
    if memory is not None:
        recalled = ((path, memory.recall(listing.files[path])) for path in paths)
        facts = {path: known for path, known in recalled if known is not None}
    files = _FileLists(recalled=len(facts))
    rest = [path for path in paths if path not in facts]
    earlier: dict[str, FileFacts] = {}
    if memory is not None:
        earlier = {path: memory.earlier(listing.files[path]) or FileFacts() for path in rest}

    def inspect_file(index: int) -> FileFacts:
        path = rest[index]
        if memory is None:
            return inspect(listing.tree, listing.files[path])
        return inspect_unless_known(listing.tree, listing.files[path], earlier[path], memory.seal)

    # Containers are recognized, not opened.
    results = spread(inspect_file, [listing.files[path].size for path in rest], watch)
    for path, result in zip(rest, results, strict=True):
        if earlier and is_known(result, earlier[path]):
            facts[path] = earlier[path]
            files.recalled += 1
            listing.bytes_read += result.bytes_read
        else:
            facts[path] = result
    facts |= _open_containers(listing, facts, watch)
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
            files.binaries.append(
                Binary(path, file.size, files.limit_symbols(elf), owner, packed=file.packed)
            )
            unread = elf.unread
        elif file_facts.outline is not None:
            # Python prefers the source if there is one.
            if not (is_sourceless(path) and path.removesuffix("c") in listing.files):
                files.outlines[path] = file_facts.outline
            if file_facts.stated and owner is not None:
                files.statements.append(Statements(path, file_facts.stated, owner))
        elif (device := file_facts.device) is not None:
            files.artefacts.append(_make_artefact(path, file.size, owner, device))
            unread = device.unread
        if file_facts.closed is not None:
            files.closed.append(ClosedFile(path, file.size, owner, file_facts.closed))
        if file_facts.contents is not None:
            files.add_contents(path, file.size, owner, file_facts.contents)
            contents = file_facts.contents
            is_large = file.size >= LARGE_CONTAINER or contents.files >= MANY_FILES
            if contents.closed is not None and is_large:
                unread = (*unread, f"not all of what it holds is known: {contents.closed}")
        for why in unread:
            listing.note(path, why)
    return files


def _open_containers(
    listing: Listing, facts: Mapping[str, FileFacts], watch: Watch
) -> dict[str, FileFacts]:
    """Return the facts of the containers among `facts`, with their contents."""
    waiting = {
        path: (listing.files[path].size, item.contents)
        for path, item in facts.items()
        if item.contents is not None and item.contents.waiting is not None
    }
    if not waiting:
        return {}
    chosen, unopened = plan_opening(waiting)
    contents = {**unopened}
    for path in chosen:
        if waiting[path][1].is_ahead:
            contents[path] = replace(waiting[path][1], waiting=None, is_ahead=False)
    still = [(listing.files[path], facts[path]) for path in chosen if path not in contents]
    inside = spread(
        lambda index: open_container(listing.tree, *still[index]),
        [file.size for file, _ in still],
        watch,
    )
    opened = dict(zip((path for path in chosen if path not in contents), inside, strict=True))
    return opened | {path: replace(facts[path], contents=item) for path, item in contents.items()}


def _find_library_links(
    listing: Listing, binaries: list[Binary], artefacts: list[str], hard_links: Mapping[str, str]
) -> Iterator[Link]:
    """Yield the links that the loader model needs to find what the loader finds, sorted."""
    objects = {binary.path for binary in binaries}
    listed = objects.union(artefacts)
    hard = {path: target for path, target in hard_links.items() if target in listed}
    named = {path for path in listing.links if _LIBRARY_NAME.search(path.rpartition("/")[2])}
    with_libraries = folders_above(objects | hard.keys() | named)
    for path in sorted({*listing.links, *hard}):
        if path in hard:
            yield Link(path, "/" + hard[path], hard=True)
        elif path in named or listing.paths.folder(path) in with_libraries:
            yield Link(path, listing.links[path])


# Names of the files whose contents `collect` reads.
#
# A reader of layers stores the content of these in passing: METADATA, package lists, loader
# configuration, Python sources. Links can lead `collect` to a file of any other name.


_FOLDER = r"(?:[^/]*\.(?:dist|egg)-info|EGG-INFO)"
#: Zipped eggs up to this size are stored whole; the layer of a larger one is read again.
LARGEST_EGG = 4 << 20

#: Ends of paths, without the folders above that links may replace, with the size limit of each
#: file.
_LIMITS = {
    r"[^/]*\.py": LARGEST_SEARCHED,
    rf"{_FOLDER}/(?:RECORD|installed-files\.txt)": LARGEST_RECORD,
    rf"{_FOLDER}/(?:METADATA|PKG-INFO)|[^/]*\.egg-info": LARGEST_METADATA,
    rf"{_FOLDER}/(?:INSTALLER|direct_url\.json|entry_points\.txt|requires\.txt)": LARGEST_NOTE,
    rf"{_FOLDER}/variant\.json": LARGEST_VARIANT,
    rf"{_FOLDER}/sboms/.*": LARGEST_SBOM,
    r"[^/]*-py[23][^/]*\.egg": LARGEST_EGG,
    r"[^/]*\.pth|pyvenv\.cfg": LARGEST_FILE,
    r"package\.json": LARGEST_MANIFEST,
    r"package-lock\.json": LARGEST_LOCK,
    r"conda-meta/[^/]+\.json": LARGEST_CONDA_RECORD,
    r"status|status\.d/[^/]+|db/installed": LARGEST_STATUS,
    r"info/[^/]+\.list": LARGEST_LIST,
    r"rpm/(?:rpmdb\.sqlite|Packages(?:\.db)?)": LARGEST_DATABASE,
    r"ld\.so\.cache": LARGEST_CACHE,
    r"ld\.so\.(?:conf|preload)|ld\.so\.conf\.d/[^/]+|ld-musl-[^/]+\.path": LARGEST_CONFIGURATION,
    r"os-release": LARGEST_CONFIGURATION,
}
_READ_PATTERN = re.compile(
    f"(?:^|/)(?:{'|'.join(f'({pattern})' for pattern in _LIMITS)})\\Z", re.DOTALL
)
_SIZE_LIMITS = tuple(_LIMITS.values())


def is_content_read(path: str, size: int) -> bool:
    """True if `collect` may read the whole file `path`, not only inspect it."""
    match = _READ_PATTERN.search(path)
    group = match.lastindex if match is not None else None
    return group is not None and size <= _SIZE_LIMITS[group - 1]


# Trees of which only some files were opened


class _ShallowMemory:
    """A `collect.FactMemory` with every file; unopened files have no facts."""

    seal = None

    def __init__(self, facts: Mapping[str, FileFacts]) -> None:
        self._facts = facts

    def recall(self, file: File) -> FileFacts | None:
        """See `collect.FactMemory.recall`."""
        return self._facts.get(file.path, FileFacts())

    def earlier(self, file: File) -> None:
        """See `collect.FactMemory.earlier`."""

    def keep(self, file: File, facts: FileFacts) -> None:
        """See `collect.FactMemory.keep`."""


def collect_shallow(
    tree: Tree,
    facts: Mapping[str, FileFacts],
    opened: Collection[str],
    unmasked: Collection[str] = (),
    lazy: Collection[str] = (),
) -> Inventory:
    """Collect the facts of `tree`, with only the files in `facts` opened.

    The tree provides the bytes of metadata, and of the Python files in `facts`; no other file is
    opened. Possibly relevant files that are not `opened` are in `Inventory.closed`, and so is every
    large file with a harmless name: names do not decide. `unmasked` are files among these that are
    binaries by their first bytes, `lazy` the Python files that no import runs.
    """
    inventory = collect(tree, memory=_ShallowMemory(facts))
    owners = [distribution.owner for distribution in inventory.distributions]
    owner = owners[0] if len(owners) == 1 else None
    unopened = (file for file in tree.walk() if isinstance(file, File) and file.path not in opened)
    closed = tuple(
        ClosedFile(file.path, file.size, owner, by, file.path in lazy)
        for file in unopened
        if (by := find_relevance(file, unmasked)) is not None
    )
    return replace(inventory, closed=closed, stats=replace(inventory.stats, cached=0))


def find_relevance(
    file: File, unmasked: Collection[str] = ()
) -> Literal["name", "bytes", "size"] | None:
    """Return the reason for an unopened file's relevance; None if irrelevant."""
    if file.path in unmasked:
        return "bytes"
    if may_matter(file.path, file.size):
        return "name"
    return "size" if file.size >= LEAST and may_hide(file.path, file.size) else None


# The program `python3 scan.pyz ROOT OUTPUT.json` (see `facts.inventory.archive`).
#
# Exit codes: 0 the inventory was written, including a list of unreadable files; 2 wrong usage; 3
# the root cannot be read, or the output cannot be written.


def run_scanner(arguments: Sequence[str]) -> int:
    """Scan the folder ROOT, write its inventory and return the exit code."""
    if len(arguments) != 2:
        print("usage: scan.pyz ROOT OUTPUT.json", file=sys.stderr)
        return 2
    root, output = map(Path, arguments)
    print(f"scanning {root}", file=sys.stderr, flush=True)
    try:
        with DirectoryTree(root) as tree:
            inventory = collect(tree)
    except OSError as error:
        print(f"{root} cannot be read: {reason(error)}", file=sys.stderr)
        return 3
    try:
        write_atomically(output, encode(inventory))
    except OSError as error:
        print(f"{output} cannot be written: {reason(error)}", file=sys.stderr)
        return 3
    stats = inventory.stats
    print(
        f"{stats.files} files, {stats.binaries} binaries, {len(inventory.distributions)}"
        f" distributions, {len(inventory.unread)} unread, {stats.seconds:.1f} s",
        file=sys.stderr,
    )
    return 0
