"""The loader model against the real ld.so, which lists what it would load inside of a chroot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from buildmatrix.elf.reader import read_elf
from buildmatrix.elf.source import BytesSource
from buildmatrix.inventory.collect import collect
from buildmatrix.inventory.loader import Needed, Resolution, resolve
from buildmatrix.trees.directory import DirectoryTree

PROGRAM = "opt/app/bin/program"
MISSING = "libmissing.so"
LIBRARIES = ("liba.so", "libb.so", "libd.so", "libe.so")


#: As ldd does it, inside of a chroot; the variable must not reach any program outside of it.
TRACE = """
import os, re, subprocess, sys
root, interpreter, program, library_path, preload = sys.argv[1:]
environment = {"LD_TRACE_LOADED_OBJECTS": "1"}
if preload:
    environment["LD_PRELOAD"] = preload
if library_path:
    environment["LD_LIBRARY_PATH"] = library_path
reading, writing = os.pipe()
if os.fork() == 0:
    os.dup2(writing, 1)
    os.chroot(root)
    os.chdir("/")
    os.execve(interpreter, [interpreter, program], environment)
os.close(writing)
os.chroot(root)
with open(reading) as lines:
    for line in lines:
        if match := re.match(r"\\t(\\S+) => (?:not found|(\\S+) \\(0x)", line):
            print(match[1], match[2] and os.path.realpath(match[2]).lstrip("/"))
        elif match := re.match(r"\\t(/opt/\\S+) \\(0x", line):
            print(match[1], os.path.realpath(match[1]).lstrip("/"))
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def lacking(what: str) -> None:
    """In CI a test that cannot run is a failure; elsewhere it says what to install."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
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
            [self.interpreter, "--help"], capture_output=True, text=True, timeout=60
        ).stdout
        folders = re.findall(r"^  (/\S+) \(system search path\)", listing, re.MULTILINE)
        return folders[0].lstrip("/"), folders[-1].lstrip("/")


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    for tool in ("gcc", "ld", "ldconfig"):
        if shutil.which(tool) is None:
            lacking(f"{tool} is missing: apt-get install gcc binutils libc-bin")
    folder = tmp_path_factory.mktemp("toolchain")
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

    def real(self, library_path: str = "", preload: str = "") -> dict[str, set[str | None]]:
        """Requested name → files that ld.so loads for it; None where it finds nothing."""
        command = [*self.tools.as_root, sys.executable, "-c", TRACE, str(self.path)]
        command += [self.tools.interpreter, f"/{PROGRAM}", library_path, preload]
        answers: dict[str, set[str | None]] = {}
        for line in run(*command).splitlines():
            name, path = line.split()
            answers.setdefault(name, set()).add(None if path == "None" else path)
        assert answers, "ld.so listed nothing"
        return answers

    def model(self, library_path: str = "", preload: str = "", *, cache: bool = True) -> Resolution:
        with DirectoryTree(self.path) as tree:
            inventory = collect(tree)
        variables = {"LD_LIBRARY_PATH": library_path, "LD_PRELOAD": preload}
        environment = {name: value for name, value in variables.items() if value}
        inventory = replace(inventory, environment=environment)
        if not cache:
            inventory = replace(inventory, loader_cache=None)
        return resolve(inventory, {"x86_64": self.tools.hwcaps()})


def in_process(resolution: Resolution, program: str = PROGRAM) -> list[Needed]:
    """Every entry of every object that `program` loads."""
    by_binary: dict[str, list[Needed]] = {}
    for entry in resolution.needed:
        by_binary.setdefault(entry.binary, []).append(entry)
    entries = list(resolution.preloaded)
    ahead = [program, *(entry.found for entry in entries if entry.found is not None)]
    seen = set(ahead)
    while ahead:
        for entry in by_binary.get(ahead.pop(), ()):
            entries.append(entry)
            if entry.found is not None and entry.found not in seen:
                seen.add(entry.found)
                ahead.append(entry.found)
    return entries


def assert_same(root: Root, library_path: str = "", preload: str = "") -> Resolution:
    """The model agrees with ld.so, with the tree's ld.so.cache and with what stands in for it."""
    real = root.real(library_path, preload)
    compare(real, root.model(library_path, preload, cache=False))
    resolution = root.model(library_path, preload)
    compare(real, resolution)
    return resolution


def compare(real: dict[str, set[str | None]], resolution: Resolution) -> None:
    modelled: dict[str, set[str | None]] = {}
    for entry in in_process(resolution):
        modelled.setdefault(entry.name, set()).add(entry.found)
    if any(None in found and len(found) > 1 for found in modelled.values()):
        # ld.so remembers a missing name while it lists and lets it answer later requests. Outside
        # of a listing the process has ended by then, so there is nothing to compare.
        reject()
    for name, found in real.items():
        assert modelled.get(name) == found, f"{name}: ld.so {found}, model {modelled.get(name)}"
    loaded = {path for paths in real.values() for path in paths}
    assert {path for paths in modelled.values() for path in paths} - {None} == loaded - {None}


@pytest.fixture
def root(tmp_path: Path, toolchain: Toolchain) -> Root:
    return Root(tmp_path / "root", toolchain)


def rule_of(resolution: Resolution, binary: str, name: str) -> str | None:
    return next(n.rule for n in resolution.needed if (n.binary, n.name) == (binary, name))


def test_rpath_is_inherited_by_the_libraries_of_a_library(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), rpath=("$ORIGIN/../lib",)))
    root.add("opt/app/lib/liba.so", Object(needed=("libb.so",)))
    root.add("opt/app/lib/libb.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/app/lib/liba.so", "libb.so") == "inherited-rpath"


def test_runpath_is_not_inherited(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("$ORIGIN/../lib",)))
    root.add("opt/app/lib/liba.so", Object(needed=("libb.so",)))
    root.add("opt/app/lib/libb.so", Object())
    resolution = assert_same(root)
    (entry,) = [n for n in resolution.needed if n.name == "libb.so"]
    assert entry.found is None
    assert entry.anywhere == ("opt/app/lib/libb.so",)
    assert resolution.missing == ()


def test_an_object_with_runpath_ignores_the_rpath_of_its_loaders(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), rpath=("$ORIGIN/../lib",)))
    root.add("opt/app/lib/liba.so", Object(needed=("libb.so",), runpath=("/opt/none",)))
    root.add("opt/app/lib/libb.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/app/lib/liba.so", "libb.so") is None


def test_a_library_that_is_loaded_already_answers_to_its_soname(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so"), runpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object(soname="libd.so"))
    root.add("opt/one/libb.so", Object(needed=("libd.so",)))
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/one/libb.so", "libd.so") == "loaded"


def test_the_environment_comes_after_rpath_and_before_runpath(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so"), rpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object(needed=("libd.so",), runpath=("/opt/one",)))
    for name in ("liba.so", "libb.so", "libd.so"):
        root.add(f"opt/two/{name}", Object())
    root.add("opt/one/libd.so", Object())
    resolution = assert_same(root, "/opt/two")
    assert rule_of(resolution, PROGRAM, "liba.so") == "rpath"
    assert rule_of(resolution, "opt/one/liba.so", "libd.so") == "environment"


def test_a_library_of_another_machine_is_passed_over(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/one", "/opt/two")))
    root.add("opt/one/liba.so", Object(foreign=True))
    root.add("opt/two/liba.so", Object())
    resolution = assert_same(root)
    (entry,) = [n for n in resolution.needed if n.name == "liba.so"]
    assert entry.found == "opt/two/liba.so"


def test_folders_of_ld_so_conf_answer_to_sonames_only(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so")))
    root.add("opt/conf/liba.so", Object(soname="libd.so"))
    root.add("opt/conf/libimplementation.so.1.2", Object(soname="libb.so"))
    root.configure("/opt/conf")
    resolution = assert_same(root)
    assert rule_of(resolution, PROGRAM, "liba.so") is None
    assert rule_of(resolution, PROGRAM, "libb.so") == "cache"


def test_the_cache_answers_with_a_soname_before_a_default_folder_does_with_a_file_name(
    root: Root, toolchain: Toolchain
) -> None:
    first, last = toolchain.default_folders()
    root.add(PROGRAM, Object(needed=("liba.so",)))
    root.add(f"{first}/liba.so", Object(soname="libe.so"))
    root.add(f"{last}/liba.so", Object(soname="liba.so"))
    root.configure("/opt/conf")
    (entry,) = in_process(assert_same(root))
    assert entry.found == f"{last}/liba.so"


def test_default_folders_do_not_count_for_nodeflib(root: Root, toolchain: Toolchain) -> None:
    first, last = toolchain.default_folders()
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so"), runpath=("/opt/one",), nodeflib=True))
    root.add(f"{first}/liba.so", Object())
    root.add("opt/one/libb.so", Object(needed=("libd.so",)))
    root.add(f"{last}/libd.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, PROGRAM, "liba.so") is None
    assert rule_of(resolution, "opt/one/libb.so", "libd.so") == "default"


def test_origin_is_the_folder_of_the_link_that_a_library_was_found_by(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/links",)))
    root.add("opt/one/liba.so", Object(needed=("libb.so",), runpath=("$ORIGIN",)))
    root.link("opt/links/liba.so", "../one/liba.so")
    root.add("opt/links/libb.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/one/liba.so", "libb.so") == "runpath"


def test_an_absolute_link_to_a_folder_begins_at_the_tree_s_root(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/links/inner",)))
    root.add("opt/one/inner/liba.so", Object())
    (root.path / "opt/links").symlink_to("/opt/one")
    (entry,) = in_process(assert_same(root))
    assert entry.found == "opt/one/inner/liba.so"


def test_a_merged_usr_is_followed(tmp_path: Path, toolchain: Toolchain) -> None:
    path = tmp_path / "root"
    for name in ("lib", "lib64"):
        (path / "usr" / name).mkdir(parents=True)
        (path / name).symlink_to(f"usr/{name}")
    root = Root(path, toolchain)
    first, _ = toolchain.default_folders()
    root.add(PROGRAM, Object(needed=("liba.so",)))
    merged = first if first.startswith("usr/") else f"usr/{first}"
    root.add(f"{merged}/liba.so", Object())
    assert_same(root)


@pytest.mark.parametrize("folder", ["opt/one", "opt/conf", "first"])
def test_the_best_hwcaps_folder_that_the_processor_can_use_comes_first(
    root: Root, toolchain: Toolchain, folder: str
) -> None:
    levels = toolchain.hwcaps()
    if not levels:
        lacking("the processor has no glibc-hwcaps level")
    place = toolchain.default_folders()[0] if folder == "first" else folder
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/one",)))
    for level in (*levels, "x86-64-v9"):
        root.add(f"{place}/glibc-hwcaps/{level}/liba.so", Object(soname="liba.so"))
    root.add(f"{place}/liba.so", Object(soname="liba.so"))
    root.configure("/opt/conf")
    (entry,) = in_process(assert_same(root))
    assert entry.found == f"{place}/glibc-hwcaps/{levels[0]}/liba.so"


def test_a_cache_that_is_out_of_date_is_believed(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so")))
    root.add("opt/conf/liba.so", Object(soname="liba.so"))
    root.add("opt/conf/libb.so", Object(soname="libb.so"))
    root.configure("/opt/conf")
    (root.path / "opt/conf/liba.so").unlink()
    root.add("opt/conf/libd.so", Object(soname="libb.so"))
    real, resolution = root.real(), root.model()
    compare(real, resolution)
    assert rule_of(resolution, PROGRAM, "liba.so") is None
    assert rule_of(resolution, PROGRAM, "libb.so") == "cache"


@pytest.mark.parametrize("preload", ["libd.so", "/opt/two/libd.so", "libd.so:libmissing.so"])
def test_what_is_preloaded_answers_before_any_search(root: Root, preload: str) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libd.so"), runpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object())
    root.add("opt/one/libd.so", Object(soname="libd.so"))
    root.add("opt/two/libd.so", Object(needed=("libe.so",), soname="libd.so"))
    root.add("opt/two/libe.so", Object())
    real = root.real("/opt/two", preload)
    real.pop(MISSING, None)
    resolution = root.model("/opt/two", preload)
    entries = [one for one in resolution.preloaded if one.name != MISSING]
    compare(real, replace(resolution, preloaded=tuple(entries)))
    assert rule_of(resolution, PROGRAM, "libd.so") == "loaded"


def test_libraries_of_ld_so_preload_join_every_program(root: Root) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object(needed=("libb.so",)))
    root.add("opt/two/libb.so", Object(soname="libb.so"))
    preload = root.path / "etc/ld.so.preload"
    preload.parent.mkdir(parents=True, exist_ok=True)
    preload.write_text("# a comment\n/opt/two/libb.so\n")
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/one/liba.so", "libb.so") == "loaded"
    assert [one.found for one in resolution.preloaded] == ["opt/two/libb.so"]


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


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    layout=layouts(),
    library_path=st.sampled_from(("", "/opt/two", "/opt/conf:/opt/one", "/opt/linked")),
    configured=st.booleans(),
)
def test_model_and_loader_agree_on_generated_trees(
    layout: dict[str, Object],
    library_path: str,
    configured: bool,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = Root(tmp_path_factory.mktemp("root"), toolchain)
    first, last = toolchain.default_folders()
    for path, spec in layout.items():
        folder, _, name = path.rpartition("/")
        head, slash, rest = folder.partition("/")
        place = f"{ {'first': first, 'last': last}.get(head, head) }{slash}{rest}"
        root.add(f"{place}/{name}", spec)
    root.link("opt/linked", "two")
    if configured:
        root.configure("/opt/conf")
    assert_same(root, library_path)
