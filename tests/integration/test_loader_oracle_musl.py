"""The loader model against the real loader of musl, which lists what it would load in a chroot."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loader_roots import (
    DRAWN,
    LIBRARY_PATHS,
    PROGRAM,
    Object,
    Root,
    Toolchain,
    answers,
    in_process,
    lacking,
    layouts,
    rule_of,
    variables,
)

from buildmatrix.base.data import replace
from buildmatrix.facts.loader import Resolution, Resolver

MACHINE = platform.machine()
LOADER = Path(f"/lib/ld-musl-{MACHINE}.so.1")
PATHS = f"etc/ld-musl-{MACHINE}.path"
DEFAULT = ("lib", "usr/local/lib", "usr/lib")


class _OneProcess(Resolver):
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
        """What `ldd` lists, which is the loader under another name.

        It goes on after a library that it does not find, and ends with 127.
        """
        given = variables(library_path, preload)
        return self.listed(str(LOADER), ["ldd", f"/{PROGRAM}"], given, (0, 127))

    def model(self, library_path: str = "", preload: str = "") -> Resolution:
        # Levels of the processor, which are nothing to musl.
        levels = {MACHINE: ("x86-64-v3", "x86-64-v2")}
        return _OneProcess(self.inventory(library_path, preload), levels).resolve()


def assert_same(root: MuslRoot, library_path: str = "", preload: str = "") -> Resolution:
    real, resolution = root.real(library_path, preload), root.model(library_path, preload)
    modelled = answers(resolution)
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
    assert (entry.path, entry.rule) == ("opt/two/liba.so", "environment")


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


@DRAWN
@given(layout=layouts(), library_path=st.sampled_from(LIBRARY_PATHS), listed=st.booleans())
def test_model_and_musl_agree_on_generated_trees(
    layout: dict[str, Object],
    library_path: str,
    listed: bool,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = made(tmp_path_factory.mktemp("root"), toolchain)
    root.fill(layout, DEFAULT[0], DEFAULT[-1])
    if listed:
        root.search("/usr/lib", "/opt/conf")
    assert_same(root, library_path)
