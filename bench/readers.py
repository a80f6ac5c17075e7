"""What is measured: each job runs in a process of its own and prints one JSON object.

    python bench/readers.py JOB PATH...

`seconds` of the answer leaves out the imports; who calls measures the whole process besides.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

#: NEEDED of each file that has any, or other facts.
Facts = dict[str, Any]
CHUNK = 1 << 20


def needed(root: Path) -> Facts:
    """What `scan` does with a tree, less the deep part: walk it, and read the headers of binaries.

    NEEDED, soname, search paths, versions, sections, notes; of every file, whatever its name.
    """
    return {path: elf.needed for path, elf in _headers(root).items() if elf.needed}


def linking(root: Path) -> Facts:
    """The same, and every NEEDED entry resolved as the loader would."""
    from buildmatrix.facts.inventory.collect import collect_shallow
    from buildmatrix.facts.inventory.file_facts import FileFacts
    from buildmatrix.facts.loader import resolve
    from buildmatrix.facts.trees.archive import DirectoryTree

    seen = {path: FileFacts(elf=elf) for path, elf in _headers(root).items()}
    with DirectoryTree(root) as tree:
        resolution = resolve(collect_shallow(tree, seen, seen))
    return {"resolved": sum(entry.path is not None for entry in resolution.needed)}


def _headers(root: Path) -> dict[str, Any]:
    from buildmatrix.facts.binaries.reader import Malformed, read_elf
    from buildmatrix.facts.inventory.listing import Listing
    from buildmatrix.facts.inventory.workers import spread
    from buildmatrix.facts.trees.archive import DirectoryTree

    with DirectoryTree(root) as tree:
        files = list(Listing(tree).files.values())

        def read(index: int) -> Any:
            file = files[index]
            if file.size < 52:
                return None
            with suppress(Malformed, OSError), tree.open(file.path) as source:
                if source.read(0, 4) == b"\x7fELF":
                    return read_elf(source, file.size, deep=False)
            return None

        found = spread(read, [file.size for file in files])
    return {file.path: elf for file, elf in zip(files, found, strict=True) if elf is not None}


def full(root: Path, *, python: bool = True) -> Facts:
    """The whole scan; without `python` binaries and device code only."""
    from buildmatrix.facts.inventory.collect import collect
    from buildmatrix.facts.inventory.file_facts import inspect
    from buildmatrix.facts.inventory.listing import Listing
    from buildmatrix.facts.inventory.workers import spread
    from buildmatrix.facts.trees.archive import DirectoryTree

    with DirectoryTree(root) as tree:
        if python:
            inventory = collect(tree)
            return {"files": inventory.stats.files, "binaries": inventory.stats.binaries}
        found = Listing(tree).files.values()
        files = [file for file in found if not file.path.endswith(".py")]
        seen = spread(lambda index: inspect(tree, files[index]), [file.size for file in files])
    return {"binaries": sum(one.elf is not None for one in seen)}


def searched(root: Path) -> Facts:
    """Reads what the full scan searches, in the same pieces, and does nothing with it."""
    from buildmatrix.facts.elf.headers import Malformed, read_dynamic, read_headers
    from buildmatrix.facts.elf.layout import CachedSource
    from buildmatrix.facts.elf.search import host_regions
    from buildmatrix.facts.inventory.listing import Listing
    from buildmatrix.facts.inventory.workers import spread
    from buildmatrix.facts.trees.archive import DirectoryTree

    with DirectoryTree(root) as tree:
        files = [one for one in Listing(tree).files.values() if not one.path.endswith(".py")]

        def read(index: int) -> int:
            count = 0
            with suppress(Malformed, OSError), tree.open(files[index].path) as source:
                cached = CachedSource(source, files[index].size)
                headers = read_headers(cached)
                if headers is not None:
                    dynamic = read_dynamic(cached, headers)
                    for region in host_regions(headers, dynamic, files[index].size):
                        for at in range(region.offset, region.end, CHUNK // 2):
                            count += len(source.read(at, min(CHUNK // 2, region.end - at)))
            return count

        return {"bytes": sum(spread(read, [file.size for file in files]))}


def own_files(paths: Sequence[str]) -> Facts:
    """Our header reader on single files."""
    from buildmatrix.facts.binaries.reader import read_elf
    from buildmatrix.facts.trees.archive import OpenFile

    facts = {}
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            source = OpenFile(descriptor)
            elf = read_elf(source, source.size, deep=False)
        finally:
            os.close(descriptor)
        facts[path] = [] if elf is None else elf.needed
    return facts


def pyelftools(paths: Sequence[str]) -> Facts:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    facts: Facts = {}
    for path in paths:
        with Path(path).open("rb") as stream:
            for section in ELFFile(stream).iter_sections():
                if isinstance(section, DynamicSection):
                    facts[path] = [tag.needed for tag in section.iter_tags("DT_NEEDED")]
    return facts


def lief_least(paths: Sequence[str]) -> Facts:
    """LIEF with every option of its parser off."""
    import lief

    config = lief.ELF.ParserConfig()
    for option in ("parse_relocations", "parse_dyn_symbols", "parse_symtab_symbols",
                   "parse_symbol_versions", "parse_notes", "parse_overlay"):  # fmt: skip
        setattr(config, option, False)
    return _lief(paths, config)


def lief_all(paths: Sequence[str]) -> Facts:
    """LIEF as it comes."""
    import lief

    return _lief(paths, lief.ELF.ParserConfig.all)


def _lief(paths: Sequence[str], config: Any) -> Facts:
    import lief

    lief.logging.disable()
    facts = {}
    for path in paths:
        binary = lief.ELF.parse(path, config)
        facts[path] = [] if binary is None else list(map(str, binary.libraries))
    return facts


def elfdeps(paths: Sequence[str]) -> Facts:
    from elfdeps import analyze_file

    return {path: [str(one) for one in analyze_file(Path(path)).requires] for path in paths}


def auditwheel(paths: Sequence[str]) -> Facts:
    from auditwheel.lddtree import ldd

    count = 0
    for path in paths:
        with suppress(Exception):  # It refuses objects of other machines, and some others.
            count += len(ldd(Path(path)).libraries)
    return {"libraries": count}


def environment(paths: Sequence[str]) -> Facts:
    """A scan of a folder with a copy of a cache: it stays as it was made."""
    from buildmatrix.facts.trees.archive import DirectoryTree
    from buildmatrix.images.store.cache import Cache
    from buildmatrix.images.store.facts import FactCache

    root, made = map(Path, paths)
    with TemporaryDirectory() as copy, DirectoryTree(root) as tree:
        shutil.copytree(made, copy, dirs_exist_ok=True)
        inventory = FactCache(Cache(Path(copy)), key=bytes(32)).folder(root, tree)
    return {"files": inventory.stats.files, "cached": inventory.stats.cached}


def inflate(path: Path) -> Facts:
    """Inflates all members of a wheel to nowhere: the floor for who looks into one."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                while chunk := stream.read(CHUNK):
                    total += len(chunk)
    return {"bytes": total}


def wheel(path: Path) -> Facts:
    """Scans a wheel and matches what is in it with the catalogue."""
    from buildmatrix.catalogue.load import load
    from buildmatrix.catalogue.match import evidence
    from buildmatrix.facts.inventory.collect import collect
    from buildmatrix.facts.trees.wheel import WheelTree

    with WheelTree(path) as tree:
        inventory = collect(tree)
    found = evidence(inventory, load())
    return {"binaries": len(inventory.binaries), "evidence": len(found)}


def _one(job: Callable[[Path], Facts]) -> Callable[[Sequence[str]], Facts]:
    return lambda paths: job(Path(paths[0]))


JOBS: dict[str, Callable[[Sequence[str]], Facts]] = {
    "needed": _one(needed),
    "linking": _one(linking),
    "full": _one(full),
    "binaries": _one(lambda root: full(root, python=False)),
    "searched": _one(searched),
    "files": own_files,
    "pyelftools": pyelftools,
    "lief-least": lief_least,
    "lief-all": lief_all,
    "elfdeps": elfdeps,
    "auditwheel": auditwheel,
    "inflate": _one(inflate),
    "wheel": _one(wheel),
    "environment": environment,
}


def _imports() -> Iterator[str]:
    """What a job imports is imported before its clock starts."""
    yield from ("buildmatrix.facts.inventory.collect", "buildmatrix.facts.loader")
    yield from ("buildmatrix.facts.trees.wheel", "buildmatrix.facts.trees.archive")
    yield from ("buildmatrix.catalogue.match", "buildmatrix.catalogue.load")


def bytes_read() -> int:
    """Bytes that this process and its ended children have got from read calls (Linux)."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def main() -> None:
    """Runs one job."""
    name, *paths = sys.argv[1:]
    modules = {"lief-least": ["lief"], "lief-all": ["lief"], "auditwheel": ["auditwheel.lddtree"]}
    modules |= {"pyelftools": ["elftools.elf.elffile"], "elfdeps": ["elfdeps"]}
    for module in modules.get(name, _imports()):
        __import__(module)
    before, started = bytes_read(), time.perf_counter()
    facts = JOBS[name](paths)
    seconds = time.perf_counter() - started
    answer = {"seconds": seconds, "read": bytes_read() - before}
    json.dump({**answer, "facts": facts}, sys.stdout)


if __name__ == "__main__":
    main()
