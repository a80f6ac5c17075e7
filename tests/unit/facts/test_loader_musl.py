"""musl's rules, where they differ from glibc's (ldso/dynlink.c)."""

from __future__ import annotations

from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary, Inventory
from buildmatrix.facts.loader import Needed, resolve

MUSL = "lib/ld-musl-x86_64.so.1"


def binary(
    path: str,
    *needed: str,
    machine: str = "x86_64",
    rpath: tuple[str, ...] = (),
    runpath: tuple[str, ...] = (),
    soname: str | None = None,
    program: bool = False,
) -> Binary:
    interpreter = f"/{MUSL}" if program else None
    elf = Elf(
        64,
        True,
        machine,
        "dyn",
        soname=soname,
        needed=needed,
        rpath=rpath,
        runpath=runpath,
        interpreter=interpreter,
    )
    return Binary(path, 1, elf)


def answers(*binaries: Binary, **parts: object) -> dict[str, Needed]:
    everything = (binary(MUSL), *binaries)
    resolution = resolve(Inventory(binaries=everything, **parts))  # type: ignore[arg-type]
    return {entry.name: entry for entry in resolution.needed}


def test_the_parts_of_the_c_library_are_the_loader_itself() -> None:
    found = answers(binary("bin/p", "libc.musl-x86_64.so.1", "libpthread.so.0", program=True))
    assert {entry.path for entry in found.values()} == {MUSL}


def test_runpath_is_inherited_as_rpath_is() -> None:
    found = answers(
        binary("bin/p", "liba.so", runpath=("$ORIGIN/../opt",), program=True),
        binary("opt/liba.so", "libb.so", runpath=("/none",)),
        binary("opt/libb.so"),
    )
    assert (found["libb.so"].path, found["libb.so"].rule) == ("opt/libb.so", "inherited-rpath")


def test_the_environment_comes_before_rpath() -> None:
    found = answers(
        binary("bin/p", "liba.so", rpath=("/opt",), program=True),
        binary("opt/liba.so"),
        binary("env/liba.so"),
        environment={"LD_LIBRARY_PATH": "/env"},
    )
    assert (found["liba.so"].path, found["liba.so"].rule) == ("env/liba.so", "environment")


def test_a_soname_is_no_name() -> None:
    found = answers(
        binary("bin/p", "liba.so", "libb.so", program=True), binary("lib/liba.so", soname="libb.so")
    )
    assert found["libb.so"].path is None


def test_a_library_of_another_machine_ends_the_search() -> None:
    found = answers(
        binary("bin/p", "liba.so", program=True),
        binary("lib/liba.so", machine="aarch64"),
        binary("usr/lib/liba.so"),
    )
    assert found["liba.so"].path is None


def test_the_path_file_replaces_the_default_folders() -> None:
    binaries = (binary("bin/p", "liba.so", program=True), binary("usr/lib/liba.so"))
    assert answers(*binaries)["liba.so"].rule == "default"
    replaced = answers(*binaries, musl_folders={"x86_64": ("/opt",)})
    assert replaced["liba.so"].path is None


def test_a_path_with_a_token_that_musl_does_not_know_is_dropped() -> None:
    found = answers(
        binary("bin/p", "liba.so", rpath=("/opt", "$LIB/x"), program=True), binary("opt/liba.so")
    )
    assert found["liba.so"].path is None


def test_extension_modules_of_a_musl_tree_follow_its_rules() -> None:
    found = answers(binary("usr/lib/python3.12/_c.so", "libc.so"))
    assert found["libc.so"].path == MUSL
