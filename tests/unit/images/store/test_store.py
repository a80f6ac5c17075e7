"""Stored inventories: what is written comes back, and what is damaged is told."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import msgspec
import pytest

from buildmatrix.base.errors import UndecidedError
from buildmatrix.facts.elf.model import DeviceCode, Elf, Literal, Mark, Section
from buildmatrix.facts.inventory.model import (
    SCHEMA,
    Artefact,
    Binary,
    Distribution,
    Inventory,
    Link,
    SharedPath,
    Stats,
    SystemPackage,
    Unread,
    encode,
)
from buildmatrix.images import store

FULL = Inventory(
    distributions=(Distribution("x", "1", "x-1.dist-info", requires=("y>=1",), size=7),),
    binaries=(
        Binary(
            "x/lib.so",
            7,
            Elf(
                bits=64,
                little_endian=True,
                machine="x86_64",
                type="dyn",
                soname="lib.so",
                needed=("libc.so.6",),
                sections=(Section(".text", 0, 7), Section(".bss", 7, 0, nobits=True)),
                device_code=(DeviceCode("nv-fatbin", "sass", None, 1, 7, 0, note="why"),),
                literals=(Literal("libcuda.so.1", 3),),
                marks=(Mark("cudart-error-string", 5),),
                unread=("a table lies past the end",),
            ),
            owner="x==1",
        ),
    ),
    artefacts=(Artefact("x/a.ptx", 1, "ptx"),),
    links=(Link("lib", "usr/lib"), Link("a", "/b", hard=True)),
    system_packages=(SystemPackage("libc6", "2.36"),),
    shared_paths=(SharedPath("p", ("a==1", "b==1"), None), SharedPath("q", ("a==1", "b==1"), ())),
    library_folders=("usr/local/lib",),
    environment={"PATH": "/bin"},
    unread=(Unread("x/\N{SNOWMAN}", "reason"),),
    stats=Stats(files=3, seconds=0.25),
)


@pytest.mark.parametrize("inventory", [FULL, Inventory()])
def test_what_is_encoded_comes_back_as_it_was(inventory: Inventory) -> None:
    assert store.decode(encode(inventory)) == inventory


def test_the_same_inventory_gives_the_same_bytes() -> None:
    assert encode(FULL) == encode(store.decode(encode(FULL)))


def test_an_empty_tree_still_names_its_schema() -> None:
    assert encode(Inventory()) == b'{"schema":"%s"}' % SCHEMA.encode()


def test_strings_that_are_no_text_stay_valid_json() -> None:
    data = encode(Inventory(library_folders=("lib\udcff",)))
    assert store.decode(data).library_folders == (r"lib\udcff",)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "broken"),
        (b"{", "broken"),
        (b"[]", "broken"),
        (b"{}", "broken"),
        (b"\xff\xfe", "broken"),
        (b'{"schema":"' + SCHEMA.encode() + b'"', "broken"),
        (b'{"schema":"buildmatrix/facts/inventory/99"}', f"this version reads {SCHEMA!r}"),
        (b'{"schema":"' + SCHEMA.encode() + b'","binaries":[{"path":3}]}', "binaries"),
        (b'{"schema":"' + SCHEMA.encode() + b'","links":' + b"[" * 100_000, "broken"),
    ],
)
def test_what_is_no_inventory_of_this_schema_is_refused_in_one_sentence(
    data: bytes, why: str
) -> None:
    with pytest.raises(UndecidedError, match="scan the tree again") as caught:
        store.decode(data)
    assert why in caught.value.message


def test_a_file_is_written_whole_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new/folder/inventory.json"
    store.write(path, FULL)
    store.write(path, FULL)
    assert store.read(path) == FULL
    assert [entry.name for entry in path.parent.iterdir()] == ["inventory.json"]


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UndecidedError, match=r"missing\.json cannot be read"):
        store.read(tmp_path / "missing.json")
    (tmp_path / "broken.json").write_bytes(b"{")
    with pytest.raises(UndecidedError, match=r"broken\.json: the inventory is broken"):
        store.read(tmp_path / "broken.json")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UndecidedError, match="cannot be written"):
        store.write(tmp_path / "file/inventory.json", FULL)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "inventory.json"
    store.write(path, Inventory())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(UndecidedError, match="cannot be written"):
            store.write(path, FULL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert store.read(path) == Inventory()
    assert [entry.name for entry in tmp_path.iterdir()] == ["inventory.json"]


def test_unknown_fields_of_a_later_minor_change_are_passed_over() -> None:
    document = msgspec.json.decode(encode(FULL))
    document["later"] = [1]
    assert store.decode(msgspec.json.encode(document)) == FULL
