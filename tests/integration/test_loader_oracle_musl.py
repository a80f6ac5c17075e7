"""The loader model against the real loader of musl, which lists what it would load in a chroot."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_loader_oracle import (
    PROGRAM,
    Object,
    Root,
    Toolchain,
    in_process,
    lacking,
    layouts,
    rule_of,
)
from test_loader_oracle import toolchain as toolchain  # a fixture

from buildmatrix.inventory.collect import collect
from buildmatrix.inventory.loader import Resolution, _Resolver
from buildmatrix.trees.directory import DirectoryTree

MACHINE = platform.machine()
LOADER = Path(f"/lib/ld-musl-{MACHINE}.so.1")
PATHS = f"etc/ld-musl-{MACHINE}.path"
DEFAULT = ("lib", "usr/local/lib", "usr/lib")

#: What is listed by `ldd`, which is the loader under another name. It goes on after a library that
#: it does not find, and ends with 127.
TRACE = """
import os, re, subprocess, sys
root, interpreter, program, library_path, preload = sys.argv[1:]
environment = {}
if preload:
    environment["LD_PRELOAD"] = preload
if library_path:
    environment["LD_LIBRARY_PATH"] = library_path
reading, writing = os.pipe()
if os.fork() == 0:
    os.dup2(writing, 1)
    os.chroot(root)
    os.chdir("/")
    os.execve(interpreter, ["ldd", program], environment)
os.close(writing)
os.chroot(root)
with open(reading) as lines:
    for line in lines:
        if match := re.match(r"\\t(\\S+) => (\\S+) \\(0x", line):
            print(match[1], os.path.realpath(match[2]).lstrip("/"))
        elif line.startswith("\\t" + interpreter):
            print(interpreter.rpartition("/")[2], os.path.realpath(interpreter).lstrip("/"))
code = os.waitstatus_to_exitcode(os.wait()[1])
sys.exit(0 if code in (0, 127) else 1)
"""


class _OneProcess(_Resolver):
    """Without the processes that begin with a library: each may find what another one does not."""

    def _starts(self) -> list[str]:
        return [PROGRAM]


class MuslRoot(Root):
    """A root file system that holds musl and generated objects."""

    def __init__(self, path: Path, toolchain: Toolchain) -> None:
        super().__init__(path, replace(toolchain, interpreter=str(LOADER), libc=LOADER))

    def search(self, *folders: str) -> None:
        """Write the list of default folders."""
        file = self.path / PATHS
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{folder}\n" for folder in folders))

    def real(self, library_path: str = "", preload: str = "") -> dict[str, set[str | None]]:
        command = [*self.tools.as_root, sys.executable, "-c", TRACE, str(self.path)]
        command += [str(LOADER), f"/{PROGRAM}", library_path, preload]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        answers: dict[str, set[str | None]] = {}
        for line in done.stdout.splitlines():
            name, path = line.split()
            answers.setdefault(name, set()).add(path)
        assert answers, f"musl's loader listed nothing: {done.stderr}"
        return answers

    def model(self, library_path: str = "", preload: str = "", *, cache: bool = True) -> Resolution:
        with DirectoryTree(self.path) as tree:
            inventory = collect(tree)
        variables = {"LD_LIBRARY_PATH": library_path, "LD_PRELOAD": preload}
        environment = {name: value for name, value in variables.items() if value}
        # Levels of the processor, which are nothing to musl.
        levels = {MACHINE: ("x86-64-v3", "x86-64-v2")}
        return _OneProcess(replace(inventory, environment=environment), levels).resolve()


def assert_same(root: MuslRoot, library_path: str = "", preload: str = "") -> Resolution:
    real, resolution = root.real(library_path, preload), root.model(library_path, preload)
    modelled: dict[str, set[str | None]] = {}
    for entry in in_process(resolution):
        modelled.setdefault(entry.name, set()).add(entry.found)
    own = {str(LOADER).lstrip("/"), str(LOADER.resolve()).lstrip("/")}
    for name, found in real.items():
        if not found & own:
            assert modelled.get(name, set()) - {None} == found, f"{name}: musl {found}, {modelled}"
    loaded = {path for paths in real.values() for path in paths} - own
    assert {path for paths in modelled.values() for path in paths} - {None} - own == loaded
    return resolution


@pytest.fixture
def root(tmp_path: Path, toolchain: Toolchain) -> MuslRoot:
    return made(tmp_path / "root", toolchain)


def made(path: Path, toolchain: Toolchain) -> MuslRoot:
    if not LOADER.exists() or shutil.which("ld") is None:
        lacking(f"there is no {LOADER}: apt-get install musl")
    return MuslRoot(path, toolchain)


def test_runpath_is_inherited_by_the_libraries_of_a_library(root: MuslRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("$ORIGIN/../lib",)))
    root.add("opt/app/lib/liba.so", Object(needed=("libb.so",)))
    root.add("opt/app/lib/libb.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/app/lib/liba.so", "libb.so") == "inherited-rpath"


def test_the_environment_comes_before_rpath(root: MuslRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), rpath=("/opt/one",)))
    for folder in ("opt/one", "opt/two"):
        root.add(f"{folder}/liba.so", Object())
    (entry,) = in_process(assert_same(root, "/opt/two"))
    assert (entry.found, entry.rule) == ("opt/two/liba.so", "environment")


def test_a_soname_answers_to_nobody(root: MuslRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so"), runpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object(soname="libd.so"))
    root.add("opt/one/libb.so", Object(needed=("libd.so",)))
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/one/libb.so", "libd.so") is None


def test_a_library_of_another_machine_ends_the_search(root: MuslRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/one", "/opt/two")))
    root.add("opt/one/liba.so", Object(foreign=True))
    root.add("opt/two/liba.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, PROGRAM, "liba.so") is None


@pytest.mark.parametrize("place", DEFAULT)
def test_the_default_folders_are_those_of_musl(root: MuslRoot, place: str) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so")))
    root.add(f"{place}/liba.so", Object())
    root.add("opt/one/libb.so", Object())
    assert rule_of(assert_same(root), PROGRAM, "liba.so") == "default"


def test_a_list_of_folders_takes_the_place_of_the_default_ones(root: MuslRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so")))
    root.add("usr/lib/liba.so", Object())
    root.add("opt/one/libb.so", Object())
    root.search("/opt/none", "/opt/one")
    resolution = assert_same(root)
    assert rule_of(resolution, PROGRAM, "liba.so") is None
    assert rule_of(resolution, PROGRAM, "libb.so") == "default"


def test_names_of_the_c_library_are_the_loader_itself(root: MuslRoot, toolchain: Toolchain) -> None:
    stub = toolchain.folder / "libpthread.so.0"
    one = toolchain.folder / "one.o"
    subprocess.run(["ld", "-shared", one, "-h", stub.name, "-o", stub], check=True)
    root.add(PROGRAM, Object(needed=("libpthread.so.0",)))
    root.add("usr/lib/libpthread.so.0", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, PROGRAM, "libpthread.so.0") == "loaded"


@pytest.mark.parametrize("preload", ["libd.so", "/opt/two/libd.so", "libd.so:libmissing.so"])
def test_what_is_preloaded_joins_first(root: MuslRoot, preload: str) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libd.so"), runpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object())
    root.add("opt/one/libd.so", Object())
    root.add("opt/two/libd.so", Object(needed=("libe.so",)))
    root.add("opt/two/libe.so", Object())
    assert_same(root, "/opt/two", preload)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    layout=layouts(),
    library_path=st.sampled_from(("", "/opt/two", "/opt/conf:/opt/one", "/opt/linked")),
    listed=st.booleans(),
)
def test_model_and_musl_agree_on_generated_trees(
    layout: dict[str, Object],
    library_path: str,
    listed: bool,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = made(tmp_path_factory.mktemp("root"), toolchain)
    for path, spec in layout.items():
        folder, _, name = path.rpartition("/")
        head, slash, rest = folder.partition("/")
        place = f"{ {'first': DEFAULT[0], 'last': DEFAULT[-1]}.get(head, head) }{slash}{rest}"
        root.add(f"{place}/{name}", spec)
    root.link("opt/linked", "two")
    if listed:
        root.search("/usr/lib", "/opt/conf")
    assert_same(root, library_path)
