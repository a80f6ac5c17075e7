"""Root file systems of generated objects, and what a real loader lists in them.

Shared by the oracles of glibc's and of musl's loader: the linker that makes the objects, the trees
that hypothesis draws, and the process that asks the loader inside of a chroot.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from buildmatrix.base.data import replace
from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader import Needed, Resolution
from buildmatrix.facts.trees.archive import BytesSource, DirectoryTree

PROGRAM = "opt/app/bin/program"
MISSING = "libmissing.so"
LIBRARIES = ("liba.so", "libb.so", "libd.so", "libe.so")
#: Values of LD_LIBRARY_PATH for generated trees; `opt/linked` is a link to `opt/two`.
LIBRARY_PATHS = ("", "/opt/two", "/opt/conf:/opt/one", "/opt/linked")
#: How many generated trees are compared, the same ones in every run.
DRAWN = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

#: As ldd does it, inside of a chroot; the variables must not reach any program outside of it.
#: One line per name: the name, and the file behind all links, or nothing.
TRACE = """
import json, os, re, sys
root, interpreter, arguments, environment, codes = map(json.loads, sys.argv[1:])
reading, writing = os.pipe()
if os.fork() == 0:
    os.dup2(writing, 1)
    os.chroot(root)
    os.chdir("/")
    os.execve(interpreter, arguments, environment)
os.close(writing)
os.chroot(root)
with open(reading) as lines:
    for line in lines:
        if match := re.match(r"\\t(\\S+) => (?:not found|(\\S+) \\(0x)", line):
            print(match[1], match[2] and os.path.realpath(match[2]).lstrip("/"))
        elif match := re.match(r"\\t(/\\S+) \\(0x", line):
            print(match[1], os.path.realpath(match[1]).lstrip("/"))
sys.exit(0 if os.waitstatus_to_exitcode(os.wait()[1]) in codes else 1)
"""


def lacking(what: str) -> None:
    """In CI a test that cannot run is a failure; elsewhere it says what to install."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Toolchain:
    """The host's linker and C library, and the pieces that every generated object is made of."""

    folder: Path
    interpreter: str
    libc: Path
    as_root: tuple[str, ...]

    def hwcaps(self) -> tuple[str, ...]:
        """The glibc-hwcaps folders that ld.so searches on this machine, best first."""
        listing = run(self.interpreter, "--help")
        return tuple(re.findall(r"^  (\S+) \(supported, searched\)", listing, re.MULTILINE))

    def default_folders(self) -> tuple[str, str]:
        """The first and the last default folder of this C library that hold libraries."""
        listing = subprocess.run(
            [self.interpreter, "--help"], capture_output=True, text=True, timeout=300
        ).stdout
        folders = re.findall(r"^  (/\S+) \(system search path\)", listing, re.MULTILINE)
        return folders[0].lstrip("/"), folders[-1].lstrip("/")


def make_toolchain(folder: Path) -> Toolchain:
    """The pieces of all objects, assembled and linked once for both oracles."""
    for tool in ("gcc", "ld", "ldconfig"):
        if shutil.which(tool) is None:
            lacking(f"{tool} is missing: apt-get install gcc binutils libc-bin")
    source = folder / "one.s"
    source.write_text('.globl _start\n_start: .byte 0\n.section .note.GNU-stack,"",%progbits\n')
    run("gcc", "-c", source, "-o", folder / "one.o")
    run("gcc", "-m32", "-c", source, "-o", folder / "one32.o")
    main = folder / "main.c"
    main.write_text("int main(void) { return 0; }\n")
    run("gcc", main, "-o", folder / "main")
    data = (folder / "main").read_bytes()
    elf = read_elf(BytesSource(data), len(data), deep=False)
    assert elf is not None and elf.interpreter is not None
    libc = Path(run("gcc", "-print-file-name=libc.so.6").strip()).resolve()
    if "system search path" not in run(elf.interpreter, "--help"):
        lacking("ld.so does not tell its default folders: glibc 2.33 or later is needed")
    as_root: tuple[str, ...] = ()
    if os.geteuid() != 0:
        as_root = ("unshare", "--user", "--map-root-user")
        if subprocess.run([*as_root, "true"], capture_output=True).returncode != 0:
            lacking("chroot needs root, or a kernel that lets users unshare namespaces")
    for name in (*LIBRARIES, MISSING):
        run("ld", "-shared", folder / "one.o", "-h", name, "-o", folder / name)
    return Toolchain(folder, elf.interpreter, libc, as_root)


@dataclass(frozen=True)
class Object:
    """What the linker is told about one object."""

    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    soname: str | None = None
    nodeflib: bool = False
    foreign: bool = False


class Root:
    """A root file system that holds ld.so, the C library and generated objects."""

    def __init__(self, path: Path, toolchain: Toolchain) -> None:
        self.path = path
        self.tools = toolchain
        self.configured: tuple[str, ...] = ()
        for file in (Path(toolchain.interpreter), toolchain.libc):
            place = path / str(file).lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file.resolve(), place)

    def add(self, path: str, spec: Object) -> None:
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = ["ld", "-o", target]
        if path == PROGRAM:
            command += ["-pie", "-dynamic-linker", self.tools.interpreter]
        else:
            command.append("-shared")
        if spec.soname:
            command += ["-h", spec.soname]
        if spec.foreign:
            run(*command, "-m", "elf_i386", self.tools.folder / "one32.o")
            return
        if spec.rpath:
            command += ["--disable-new-dtags", "-rpath", ":".join(spec.rpath)]
        elif spec.runpath:
            command += ["--enable-new-dtags", "-rpath", ":".join(spec.runpath)]
        if spec.nodeflib:
            command += ["-z", "nodefaultlib"]
        stubs = [self.tools.folder / name for name in spec.needed]
        run(*command, self.tools.folder / "one.o", "--no-as-needed", *stubs)

    def link(self, path: str, target: str) -> None:
        place = self.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.symlink_to(target)

    def configure(self, *folders: str) -> None:
        """Write ld.so.conf through an include and let ldconfig make its cache and links."""
        etc = self.path / "etc/ld.so.conf.d"
        etc.mkdir(parents=True, exist_ok=True)
        (etc / "test.conf").write_text("".join(f"{folder}\n" for folder in folders))
        (self.path / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
        run(*self.tools.as_root, shutil.which("ldconfig") or "", "-r", self.path)

    def listed(
        self,
        interpreter: str,
        arguments: list[str],
        environment: Mapping[str, str],
        codes: Iterable[int] = (0,),
    ) -> dict[str, set[str | None]]:
        """Name → files that the loader lists for it; None where it finds nothing.

        `codes` are the exit codes of a listing that went well.
        """
        told = (str(self.path), interpreter, arguments, dict(environment), list(codes))
        lines = run(*self.tools.as_root, sys.executable, "-IS", "-c", TRACE, *map(json.dumps, told))
        answers: dict[str, set[str | None]] = {}
        for line in lines.splitlines():
            name, path = line.split()
            answers.setdefault(name, set()).add(None if path == "None" else path)
        assert answers, "the loader listed nothing"
        return answers

    def inventory(self, library_path: str = "", preload: str = "") -> Inventory:
        """The facts of the tree, with the variables that a loader heeds."""
        with DirectoryTree(self.path) as tree:
            found = collect(tree)
        return replace(found, environment=variables(library_path, preload))

    def fill(self, layout: Mapping[str, Object], first: str, last: str) -> None:
        """Add what `layouts` drew; `first` and `last` are default folders of the loader."""
        for path, spec in layout.items():
            folder, _, name = path.rpartition("/")
            head, slash, rest = folder.partition("/")
            place = f"{ {'first': first, 'last': last}.get(head, head) }{slash}{rest}"
            self.add(f"{place}/{name}", spec)
        self.link("opt/linked", "two")


def variables(library_path: str, preload: str) -> dict[str, str]:
    """The environment of a process, without those that are empty."""
    both = {"LD_LIBRARY_PATH": library_path, "LD_PRELOAD": preload}
    return {name: value for name, value in both.items() if value}


def in_process(resolution: Resolution, program: str = PROGRAM) -> list[Needed]:
    """Every entry of every object that `program` loads."""
    by_binary: dict[str, list[Needed]] = {}
    for entry in resolution.needed:
        by_binary.setdefault(entry.binary, []).append(entry)
    entries = list(resolution.preloaded)
    ahead = [program, *(entry.path for entry in entries if entry.path is not None)]
    seen = set(ahead)
    while ahead:
        for entry in by_binary.get(ahead.pop(), ()):
            entries.append(entry)
            if entry.path is not None and entry.path not in seen:
                seen.add(entry.path)
                ahead.append(entry.path)
    return entries


def answers(resolution: Resolution) -> dict[str, set[str | None]]:
    """Name → files that the model has a process load for it."""
    modelled: dict[str, set[str | None]] = {}
    for entry in in_process(resolution):
        modelled.setdefault(entry.name, set()).add(entry.path)
    return modelled


def rule_of(resolution: Resolution, binary: str, name: str) -> str | None:
    return next(n.rule for n in resolution.needed if (n.binary, n.name) == (binary, name))


FOLDERS = (
    "opt/one",
    "opt/two",
    "opt/app/lib",
    "opt/conf",
    "first",
    "last",
    "opt/one/glibc-hwcaps/x86-64-v2",
    "opt/conf/glibc-hwcaps/x86-64-v2",
    "first/glibc-hwcaps/x86-64-v3",
)
ENTRIES = (
    "$ORIGIN",
    "${ORIGIN}/../two",
    "$ORIGIN/../app/lib",
    "$ORIGINAL",
    "/opt/one",
    "/opt/two",
    "/opt/linked",
    "/opt/none",
)


@st.composite
def objects(draw: st.DrawFn, name: str | None = None) -> Object:
    path = draw(st.lists(st.sampled_from(ENTRIES), max_size=2, unique=True).map(tuple))
    inherited = draw(st.booleans())
    others = [MISSING, *(library for library in LIBRARIES if library != name)]
    return Object(
        needed=draw(st.lists(st.sampled_from(others), max_size=3, unique=True).map(tuple)),
        rpath=path if inherited else (),
        runpath=() if inherited else path,
        soname=draw(st.sampled_from((name, name, None, "libe.so"))) if name else None,
        nodeflib=draw(st.integers(0, 5)) == 0,
        foreign=name is not None and draw(st.integers(0, 5)) == 0,
    )


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Object]:
    """Path → object; the folders `first` and `last` stand for default folders."""
    layout = {PROGRAM: replace(draw(objects()), needed=draw(st.permutations(LIBRARIES).map(tuple)))}
    for name in LIBRARIES:
        for folder in draw(st.lists(st.sampled_from(FOLDERS), max_size=3, unique=True)):
            layout[f"{folder}/{name}"] = draw(objects(name))
    return layout
