"""Symbols that are missing: libraries that gcc makes, judged beside dlopen(3) with RTLD_NOW."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory import collect as collecting
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import ClosedFile, Inventory
from buildmatrix.facts.loader import resolve
from buildmatrix.facts.loader_binding import Unbound, find_unbound
from buildmatrix.facts.trees.archive import DirectoryTree

MANGLED = "_ZN4acme4openEv"


def compile_library(
    path: Path, source: str, *libraries: str, versions: Mapping[str, str] | None = None
) -> None:
    """Make the library `path`; `versions`: version → functions that have it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.with_suffix(".c")
    text.write_text(source)
    flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{path.name}", "-Wl,-rpath,$ORIGIN"]
    if versions:
        script = path.with_suffix(".map")
        script.write_text(
            "".join(f"{name} {{ global: {names}; }};\n" for name, names in versions.items())
        )
        flags.append(f"-Wl,--version-script={script}")
    links = [f"-l:{name}" for name in libraries]
    command = ["gcc", *flags, text, "-o", path, f"-L{path.parent}", "-Wl,--no-as-needed", *links]
    subprocess.run(command, check=True)
    text.unlink()


def library(*functions: str) -> str:
    return "".join(f"int {name}(void) {{ return 1; }}\n" for name in functions)


def user(*functions: str, weak: str = "") -> str:
    lines = [f"extern int {name}(void);\n" for name in functions]
    if weak:
        lines.append(f"extern int {weak}(void) __attribute__((weak));\n")
    calls = " + ".join((*(f"{name}()" for name in functions), *([f"!{weak}"] if weak else ())))
    return "".join(lines) + f"int run(void) {{ return {calls or 1}; }}\n"


def module(folder: Path, source: str, *libraries: str) -> Path:
    """The extension module of the distribution `acme`, with RECORD."""
    path = folder / "acme.so"
    compile_library(path, source, *libraries)
    metadata = folder / "acme-1.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (metadata / "RECORD").write_text("acme.so,,\nacme-1.dist-info/METADATA,,\n")
    return path


def dlopen_error(path: Path) -> str:
    """What ld.so says of `path`; CDLL adds RTLD_NOW. Empty where it can be loaded."""
    code = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError as e: print(e)"
    command = [sys.executable, "-I", "-c", code, path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def facts_of(folder: Path) -> Inventory:
    with DirectoryTree(folder) as tree:
        return collect(tree)


def missing_of(inventory: Inventory) -> tuple[Unbound, ...]:
    return find_unbound(inventory, resolve(inventory))


def test_a_symbol_that_an_older_library_lacks_is_missing(tmp_path: Path) -> None:
    versions = {"libacme.so.1": "first; second"}
    lib = tmp_path / "libacme.so.1"
    compile_library(lib, library("first", "second"), versions=versions)
    made = module(tmp_path, user("first", "second"), lib.name)
    assert missing_of(facts_of(tmp_path)) == () and dlopen_error(made) == ""
    compile_library(lib, library("first"), versions={"libacme.so.1": "first"})
    assert missing_of(facts_of(tmp_path)) == (
        Unbound("acme.so", ("second",), ("libacme.so.1",), "libacme.so.1"),
    )
    assert "undefined symbol: second, version libacme.so.1" in dlopen_error(made)


def test_a_version_that_a_library_lacks_is_missing(tmp_path: Path) -> None:
    lib = tmp_path / "libacme.so.1"
    compile_library(lib, library("first", "second"), versions={"A_1": "first", "A_2": "second"})
    made = module(tmp_path, user("first", "second"), lib.name)
    compile_library(lib, library("first", "second"), versions={"A_1": "first; second"})
    assert missing_of(facts_of(tmp_path)) == (Unbound("acme.so", (), ("libacme.so.1",), "A_2"),)
    assert "version `A_2' not found" in dlopen_error(made)
    # A library without any version is taken as it is.
    compile_library(lib, library("first", "second"))
    assert missing_of(facts_of(tmp_path)) == () and dlopen_error(made) == ""


@pytest.mark.parametrize(
    ("needed", "expected"),
    [
        # Only a C++ library other than the standard one can have it.
        ((MANGLED,), (MANGLED,)),
        # The C library, which is not in the tree, may have these.
        (("cos", "_ZSt9terminatev"), ()),
        (("acme_open",), ()),
    ],
)
def test_names_without_a_version_are_missing_where_no_absent_library_has_them(
    tmp_path: Path, needed: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    lib = tmp_path / "libacme.so.1"
    compile_library(lib, library(*needed, "other"))
    made = module(tmp_path, user(*needed), lib.name, "libc.so.6")
    assert missing_of(facts_of(tmp_path)) == ()
    compile_library(lib, library("other"))
    found = missing_of(facts_of(tmp_path))
    assert [item.names for item in found] == ([expected] if expected else [])
    if expected:
        assert found[0].libraries == ("libacme.so.1",)
        assert f"undefined symbol: {MANGLED}" in dlopen_error(made)


@pytest.fixture
def mangled(tmp_path: Path) -> Path:
    """A tree whose module misses a symbol of a C++ library."""
    lib = tmp_path / "libacme.so.1"
    compile_library(lib, library(MANGLED))
    made = module(tmp_path, user(MANGLED), lib.name)
    compile_library(lib, library("other"))
    assert [item.binary for item in missing_of(facts_of(tmp_path))] == ["acme.so"]
    assert dlopen_error(made)
    return tmp_path


def test_another_library_of_the_tree_may_have_been_loaded_before(mangled: Path) -> None:
    compile_library(mangled / "elsewhere" / "libother.so.2", library(MANGLED))
    assert missing_of(facts_of(mangled)) == ()
    # One of the same name cannot: the loader has that already.
    (mangled / "elsewhere" / "libother.so.2").unlink()
    compile_library(mangled / "elsewhere" / "libacme.so.1", library(MANGLED))
    assert len(missing_of(facts_of(mangled))) == 1


def test_a_library_that_is_not_there_may_have_it(mangled: Path) -> None:
    compile_library(mangled / "libfar.so.3", library("far"))
    compile_library(mangled / "libacme.so.1", library("other"), "libfar.so.3")
    assert len(missing_of(facts_of(mangled))) == 1
    (mangled / "libfar.so.3").unlink()
    assert missing_of(facts_of(mangled)) == ()


def test_what_was_not_read_may_have_it(mangled: Path) -> None:
    inventory = facts_of(mangled)
    closed = replace(inventory, closed=(ClosedFile("libother.so.2", 1_000_000),))
    assert missing_of(closed) == ()
    unread = tuple(
        replace(item, elf=replace(item.elf, binding=None)) if item.path != "acme.so" else item
        for item in inventory.binaries
    )
    assert missing_of(replace(inventory, binaries=unread)) == ()


def test_a_weak_symbol_may_be_missing(tmp_path: Path) -> None:
    lib = tmp_path / "libacme.so.1"
    compile_library(lib, library("first", MANGLED), versions={"A_1": f"first; {MANGLED}"})
    made = module(tmp_path, user("first", weak=MANGLED), lib.name)
    compile_library(lib, library("first"), versions={"A_1": "first"})
    assert missing_of(facts_of(tmp_path)) == () and dlopen_error(made) == ""


def test_the_first_object_that_has_it_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "libone.so.1", tmp_path / "libtwo.so.1"
    compile_library(one, library(MANGLED))
    compile_library(two, library("other"))
    made = module(tmp_path, user(MANGLED, "other"), one.name, two.name)
    compile_library(one, library("empty"))
    compile_library(two, library("other", MANGLED))
    assert missing_of(facts_of(tmp_path)) == () and dlopen_error(made) == ""


def test_python_code_that_loads_the_newer_file_first_settles_it(tmp_path: Path) -> None:
    lib = tmp_path / "libacme.so.1"
    compile_library(lib, library("first", "second"), versions={"A": "first; second"})
    module(tmp_path, user("first", "second"), lib.name)
    compile_library(tmp_path / "new" / lib.name, library("first", "second"), versions={"A": "*"})
    compile_library(lib, library("first"), versions={"A": "first"})
    assert len(missing_of(facts_of(tmp_path))) == 1
    (tmp_path / "acme_start.py").write_text(
        "import ctypes, os\n"
        "ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'new', 'libacme.so.1'))\n"
    )
    record = tmp_path / "acme-1.dist-info" / "RECORD"
    record.write_text(record.read_text() + "acme_start.py,,\n")
    assert missing_of(facts_of(tmp_path)) == ()


def test_a_tree_with_too_many_symbols_has_none_of_the_last(
    mangled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "MOST_SYMBOL_BYTES", len(MANGLED) + 1)
    bindings = {item.path: item.elf.binding for item in facts_of(mangled).binaries}
    assert bindings["acme.so"] is None or bindings["libacme.so.1"] is None
    assert missing_of(facts_of(mangled)) == ()
