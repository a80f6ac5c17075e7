"""Compares readers of ELF headers on the same files in one run.

Each reader tells NEEDED and the names of the sections of every file, in a process of its own, so
that peak memory is its own. Times are the best of several runs over warm files; imports are not
counted. The last line is the full scan, for which the peers have no counterpart.

    python bench/elf_readers.py /usr/lib/x86_64-linux-gnu/libLLVM*.so
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

#: NEEDED and section names of one file.
Answer = tuple[list[str], list[str]]


@dataclass(frozen=True)
class Result:
    """What one reader said about all files, and what that cost."""

    answers: list[list[list[str]]]
    seconds: float
    #: Peak resident memory of the process, KiB.
    peak: int
    #: Bytes that one run took through read calls (Linux counts them; mappings are not in there).
    read: int


def own(path: str, *, deep: bool) -> Answer:
    from buildmatrix.elf.reader import read_elf
    from buildmatrix.elf.source import FileSource

    fd = os.open(path, os.O_RDONLY)
    try:
        source = FileSource(fd)
        elf = read_elf(source, source.size, deep=deep)
    finally:
        os.close(fd)
    if elf is None:
        raise SystemExit(f"{path} is no ELF file")
    return list(elf.needed), [section.name for section in elf.sections]


def pyelftools(path: str) -> Answer:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    needed, names = [], []
    with Path(path).open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            names.append(section.name)
            if isinstance(section, DynamicSection):
                needed = [tag.needed for tag in section.iter_tags("DT_NEEDED")]
    return needed, [name for name in names if name]


def lief(path: str, *, everything: bool) -> Answer:
    import lief

    config = lief.ELF.ParserConfig.all
    if not everything:
        config = lief.ELF.ParserConfig()
        for option in ("parse_relocations", "parse_dyn_symbols", "parse_symtab_symbols",
                       "parse_symbol_versions", "parse_notes", "parse_overlay"):  # fmt: skip
            setattr(config, option, False)
    binary = lief.ELF.parse(path, config)
    if binary is None:
        raise SystemExit(f"{path} is no ELF file")
    names = [str(section.name) for section in binary.sections if section.name]
    return list(map(str, binary.libraries)), names


READERS: dict[str, Callable[[str], Answer]] = {
    "own headers": lambda path: own(path, deep=False),
    "pyelftools": pyelftools,
    "lief, options off": lambda path: lief(path, everything=False),
    "lief, everything": lambda path: lief(path, everything=True),
    "own full scan": lambda path: own(path, deep=True),
}


def bytes_read() -> int:
    """Bytes that this process has got from read calls so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def measure(name: str, files: Sequence[str], repeat: int) -> Result:
    """Runs in a child process of its own."""
    READERS[name](files[0])  # for the imports
    best = float("inf")
    for _ in range(repeat):
        before, started = bytes_read(), time.perf_counter()
        answers = [READERS[name](path) for path in files]
        best = min(best, time.perf_counter() - started)
        read = bytes_read() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Result([list(answer) for answer in answers], best, peak, read)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compares readers of ELF headers on the given files.",
        epilog="Needs Linux, and pyelftools and lief beside buildmatrix.",
    )
    parser.add_argument("files", nargs="+", help="ELF files; large ones show the differences")
    parser.add_argument("--repeat", type=int, default=3, help="runs per reader (default 3)")
    parser.add_argument("--reader", choices=list(READERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reader:
        result = measure(arguments.reader, arguments.files, arguments.repeat)
        json.dump(asdict(result), sys.stdout)
        return
    total = sum(Path(path).stat().st_size for path in arguments.files)
    print(f"{len(arguments.files)} files, {total / 1e6:,.1f} MB, best of {arguments.repeat}")
    print(f"{'reader':<20}{'ms':>10}{'ratio':>9}{'peak MiB':>10}{'bytes read':>15}  same facts")
    base: Result | None = None
    for name in READERS:
        command = [sys.executable, __file__, "--reader", name, "--repeat", str(arguments.repeat)]
        child = subprocess.run(
            [*command, *arguments.files], check=False, capture_output=True, text=True
        )
        if child.returncode:
            print(f"{name:<20}  failed: {child.stderr.strip()[-200:]}")
            continue
        result = Result(**json.loads(child.stdout))
        base = base or result
        print(
            f"{name:<20}{result.seconds * 1e3:>10.2f}{result.seconds / base.seconds:>8.1f}x"
            f"{result.peak / 1024:>10.1f}{result.read:>15,}"
            f"  {'yes' if result.answers == base.answers else 'NO'}"
        )


if __name__ == "__main__":
    main()
