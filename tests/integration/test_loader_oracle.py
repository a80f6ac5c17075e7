"""The loader model against the real ld.so, which lists what it would load inside of a chroot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from loader_roots import (
    DRAWN,
    LIBRARY_PATHS,
    MISSING,
    PROGRAM,
    Object,
    Root,
    Toolchain,
    answers,
    in_process,
    lacking,
    layouts,
    rule_of,
    run,
    variables,
)

from buildmatrix.base.data import replace
from buildmatrix.facts.loader import Resolution, resolve, resolve_opened


class GlibcRoot(Root):
    """A root file system that holds ld.so, the C library and generated objects."""

    def real(self, library_path: str = "", preload: str = "") -> dict[str, set[str | None]]:
        """What ld.so lists: names that are searched for, and paths of what is preloaded."""
        tracing = {"LD_TRACE_LOADED_OBJECTS": "1", **variables(library_path, preload)}
        loader = self.tools.interpreter
        listed = self.listed(loader, [loader, f"/{PROGRAM}"], tracing)
        # It lists itself by its path, which no object asks for.
        return {
            name: paths
            for name, paths in listed.items()
            if not name.startswith("/") or name.startswith("/opt/")
        }

    def model(self, library_path: str = "", preload: str = "", *, cache: bool = True) -> Resolution:
        inventory = self.inventory(library_path, preload)
        if not cache:
            inventory = replace(inventory, loader_cache=None)
        return resolve(inventory, {"x86_64": self.tools.hwcaps()})


@pytest.fixture
def root(tmp_path: Path, toolchain: Toolchain) -> GlibcRoot:
    return GlibcRoot(tmp_path / "root", toolchain)


def assert_same(root: GlibcRoot, library_path: str = "", preload: str = "") -> Resolution:
    """The model agrees with ld.so, with the tree's ld.so.cache and with what stands in for it."""
    real = root.real(library_path, preload)
    compare(real, root.model(library_path, preload, cache=False))
    resolution = root.model(library_path, preload)
    compare(real, resolution)
    return resolution


def compare(real: dict[str, set[str | None]], resolution: Resolution) -> None:
    modelled = answers(resolution)
    if any(None in found and len(found) > 1 for found in modelled.values()):
        # ld.so remembers a missing name while it lists and lets it answer later requests. Outside
        # of a listing the process has ended by then, so there is nothing to compare.
        reject()
    for name, found in real.items():
        assert modelled.get(name) == found, f"{name}: ld.so {found}, model {modelled.get(name)}"
    loaded = {path for paths in real.values() for path in paths}
    assert {path for paths in modelled.values() for path in paths} - {None} == loaded - {None}


def test_rpath_is_inherited_by_the_libraries_of_a_library(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), rpath=("$ORIGIN/../lib",)))
    root.add("opt/app/lib/liba.so", Object(needed=("libb.so",)))
    root.add("opt/app/lib/libb.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/app/lib/liba.so", "libb.so") == "inherited-rpath"


def test_runpath_is_not_inherited(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("$ORIGIN/../lib",)))
    root.add("opt/app/lib/liba.so", Object(needed=("libb.so",)))
    root.add("opt/app/lib/libb.so", Object())
    resolution = assert_same(root)
    (entry,) = [n for n in resolution.needed if n.name == "libb.so"]
    assert entry.path is None
    assert entry.anywhere == ("opt/app/lib/libb.so",)
    assert resolution.missing == ()


def test_an_object_with_runpath_ignores_the_rpath_of_its_loaders(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), rpath=("$ORIGIN/../lib",)))
    root.add("opt/app/lib/liba.so", Object(needed=("libb.so",), runpath=("/opt/none",)))
    root.add("opt/app/lib/libb.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/app/lib/liba.so", "libb.so") is None


#: Opens each of its arguments by its name, from a library and from a program, and says what came.
OPENER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
const char *opened(const char *name) {
    struct link_map *map;
    void *handle = dlopen(name, RTLD_LAZY);
    return handle && !dlinfo(handle, RTLD_DI_LINKMAP, &map) ? map->l_name : "";
}
"""
CALLER = """
#include <stdio.h>
const char *opened(const char *name);
int main(int count, char **names) {
    for (int i = 1; i < count; i++) printf("%s %s\\n", names[i], opened(names[i]));
}
"""
RUN = "import os, sys; os.chroot(sys.argv[1]); os.chdir('/'); os.execve(sys.argv[3], sys.argv[3:]"
RUN += ", {'LD_LIBRARY_PATH': sys.argv[2]})"


@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_names_that_a_library_opens_are_searched_for_as_those_that_it_links(
    root: GlibcRoot, tmp_path: Path, tags: str
) -> None:
    """liba in its RPATH and LD_LIBRARY_PATH, libb in ld.so.cache, libd in a default folder."""
    first = root.tools.default_folders()[0]
    for path in ("opt/one/liba.so", "opt/two/liba.so", "opt/conf/libb.so", f"{first}/libd.so"):
        root.add(path, Object(soname=path.rpartition("/")[2]))
    root.configure("/opt/conf")
    (tmp_path / "opener.c").write_text(OPENER)
    (tmp_path / "caller.c").write_text(CALLER)
    folder = root.path / "opt/app"
    folder.mkdir()
    library = folder / "libopener.so"
    options = f"-Wl,{tags},-rpath,/opt/one,-soname,libopener.so"
    run("gcc", "-shared", "-fPIC", tmp_path / "opener.c", options, "-o", library)
    run(
        *("gcc", tmp_path / "caller.c", library, "-o", folder / "caller"),
        "-Wl,-rpath,/opt/app,--enable-new-dtags",
    )
    names = ("liba.so", "libb.so", "libd.so", "libe.so")
    inventory = root.inventory()
    opener = next(item for item in inventory.binaries if item.path == "opt/app/libopener.so")
    for library_path in ("", "/opt/two"):
        told = run(
            *(*root.tools.as_root, sys.executable, "-c", RUN, root.path, library_path),
            *("/opt/app/caller", *names),
        )
        real = dict(line.split(" ") for line in told.splitlines())
        tree = replace(inventory, environment=variables(library_path, ""))
        opened = [(opener, name) for name in names]
        answers = resolve_opened(tree, opened, {"x86_64": root.tools.hwcaps()})
        assert {item.name: f"/{item.path}" if item.path else "" for item in answers} == real


def test_a_library_that_is_loaded_already_answers_to_its_soname(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so"), runpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object(soname="libd.so"))
    root.add("opt/one/libb.so", Object(needed=("libd.so",)))
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/one/libb.so", "libd.so") == "loaded"


def test_the_environment_comes_after_rpath_and_before_runpath(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so"), rpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object(needed=("libd.so",), runpath=("/opt/one",)))
    for name in ("liba.so", "libb.so", "libd.so"):
        root.add(f"opt/two/{name}", Object())
    root.add("opt/one/libd.so", Object())
    resolution = assert_same(root, "/opt/two")
    assert rule_of(resolution, PROGRAM, "liba.so") == "rpath"
    assert rule_of(resolution, "opt/one/liba.so", "libd.so") == "environment"


def test_a_library_of_another_machine_is_passed_over(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/one", "/opt/two")))
    root.add("opt/one/liba.so", Object(foreign=True))
    root.add("opt/two/liba.so", Object())
    resolution = assert_same(root)
    (entry,) = [n for n in resolution.needed if n.name == "liba.so"]
    assert entry.path == "opt/two/liba.so"


def test_folders_of_ld_so_conf_answer_to_sonames_only(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so")))
    root.add("opt/conf/liba.so", Object(soname="libd.so"))
    root.add("opt/conf/libimplementation.so.1.2", Object(soname="libb.so"))
    root.configure("/opt/conf")
    resolution = assert_same(root)
    assert rule_of(resolution, PROGRAM, "liba.so") is None
    assert rule_of(resolution, PROGRAM, "libb.so") == "cache"


def test_the_cache_answers_with_a_soname_before_a_default_folder_does_with_a_file_name(
    root: GlibcRoot, toolchain: Toolchain
) -> None:
    first, last = toolchain.default_folders()
    root.add(PROGRAM, Object(needed=("liba.so",)))
    root.add(f"{first}/liba.so", Object(soname="libe.so"))
    root.add(f"{last}/liba.so", Object(soname="liba.so"))
    root.configure("/opt/conf")
    (entry,) = in_process(assert_same(root))
    assert entry.path == f"{last}/liba.so"


def test_default_folders_do_not_count_for_nodeflib(root: GlibcRoot, toolchain: Toolchain) -> None:
    first, last = toolchain.default_folders()
    root.add(PROGRAM, Object(needed=("liba.so", "libb.so"), runpath=("/opt/one",), nodeflib=True))
    root.add(f"{first}/liba.so", Object())
    root.add("opt/one/libb.so", Object(needed=("libd.so",)))
    root.add(f"{last}/libd.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, PROGRAM, "liba.so") is None
    assert rule_of(resolution, "opt/one/libb.so", "libd.so") == "default"


def test_origin_is_the_folder_of_the_link_that_a_library_was_found_by(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/links",)))
    root.add("opt/one/liba.so", Object(needed=("libb.so",), runpath=("$ORIGIN",)))
    root.link("opt/links/liba.so", "../one/liba.so")
    root.add("opt/links/libb.so", Object())
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/one/liba.so", "libb.so") == "runpath"


def test_an_absolute_link_to_a_folder_begins_at_the_tree_s_root(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/links/inner",)))
    root.add("opt/one/inner/liba.so", Object())
    (root.path / "opt/links").symlink_to("/opt/one")
    (entry,) = in_process(assert_same(root))
    assert entry.path == "opt/one/inner/liba.so"


def test_a_merged_usr_is_followed(tmp_path: Path, toolchain: Toolchain) -> None:
    path = tmp_path / "root"
    for name in ("lib", "lib64"):
        (path / "usr" / name).mkdir(parents=True)
        (path / name).symlink_to(f"usr/{name}")
    root = GlibcRoot(path, toolchain)
    first, _ = toolchain.default_folders()
    root.add(PROGRAM, Object(needed=("liba.so",)))
    merged = first if first.startswith("usr/") else f"usr/{first}"
    root.add(f"{merged}/liba.so", Object())
    assert_same(root)


@pytest.mark.parametrize("folder", ["opt/one", "opt/conf", "first"])
def test_the_best_hwcaps_folder_that_the_processor_can_use_comes_first(
    root: GlibcRoot, toolchain: Toolchain, folder: str
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
    assert entry.path == f"{place}/glibc-hwcaps/{levels[0]}/liba.so"


def test_a_cache_that_is_out_of_date_is_believed(root: GlibcRoot) -> None:
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
def test_what_is_preloaded_answers_before_any_search(root: GlibcRoot, preload: str) -> None:
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


def test_libraries_of_ld_so_preload_join_every_program(root: GlibcRoot) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object(needed=("libb.so",)))
    root.add("opt/two/libb.so", Object(soname="libb.so"))
    preload = root.path / "etc/ld.so.preload"
    preload.parent.mkdir(parents=True, exist_ok=True)
    preload.write_text("# a comment\n/opt/two/libb.so\n")
    resolution = assert_same(root)
    assert rule_of(resolution, "opt/one/liba.so", "libb.so") == "loaded"
    assert [one.path for one in resolution.preloaded] == ["opt/two/libb.so"]


@DRAWN
@given(layout=layouts(), library_path=st.sampled_from(LIBRARY_PATHS), configured=st.booleans())
def test_model_and_loader_agree_on_generated_trees(
    layout: dict[str, Object],
    library_path: str,
    configured: bool,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = GlibcRoot(tmp_path_factory.mktemp("root"), toolchain)
    root.fill(layout, *toolchain.default_folders())
    if configured:
        root.configure("/opt/conf")
    assert_same(root, library_path)
