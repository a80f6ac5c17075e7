"""The loader model on trees that are written down as facts; the real ld.so judges it elsewhere."""

from __future__ import annotations

import pytest

from buildmatrix.facts import loader
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary, Inventory, Link
from buildmatrix.facts.loader import Needed, resolve

SITE = "usr/lib/python3/site-packages"


def binary(path: str, *needed: str, **facts: object) -> Binary:
    fields: dict[str, object] = {"machine": "x86_64", "type": "dyn", "bits": 64, **facts}
    return Binary(path, 1, Elf(little_endian=True, needed=needed, **fields))  # type: ignore[arg-type]


def answers(*binaries: Binary, **parts: object) -> dict[tuple[str, str], Needed]:
    resolution = resolve(Inventory(binaries=binaries, **parts))  # type: ignore[arg-type]
    return {(n.binary.rpartition("/")[2], n.name): n for n in resolution.needed}


def test_a_library_that_only_its_loader_s_rpath_finds_is_found() -> None:
    found = answers(
        binary(f"{SITE}/x/_c.so", "liba.so.1", rpath=("$ORIGIN/../x.libs",)),
        binary(f"{SITE}/x.libs/liba.so.1", "libb.so.1"),
        binary(f"{SITE}/x.libs/libb.so.1"),
    )
    assert found["liba.so.1", "libb.so.1"].path == f"{SITE}/x.libs/libb.so.1"
    assert found["liba.so.1", "libb.so.1"].rule == "inherited-rpath"


@pytest.mark.parametrize("interpreter", [None, "/lib/ld-musl-x86_64.so.1"])
def test_the_lib_of_a_virtual_environment_is_no_default_folder(interpreter: str | None) -> None:
    # Intel's wheels put their libraries there; ld.so finds them by RUNPATH only.
    site = "lib/python3.12/site-packages"
    runpath = ("$ORIGIN/../../../../lib",)
    found = answers(
        binary(f"{site}/a/_c.so", "libmkl_rt.so.3", interpreter=interpreter),
        binary(f"{site}/b/_c2.so", "libmkl_rt.so.3", runpath=runpath, interpreter=interpreter),
        binary("lib/libmkl_rt.so.3"),
    )
    bare = found["_c.so", "libmkl_rt.so.3"]
    assert (bare.path, bare.anywhere) == (None, ("lib/libmkl_rt.so.3",))
    led = found["_c2.so", "libmkl_rt.so.3"]
    assert (led.path, led.by) == ("lib/libmkl_rt.so.3", f"{site}/b/_c2.so")


@pytest.mark.parametrize("interpreter", [None, "/lib/ld-musl-x86_64.so.1"])
def test_the_origin_of_a_file_at_the_root_is_the_root(interpreter: str | None) -> None:
    found = answers(
        binary("tool", "libx.so.1", runpath=("$ORIGIN/lib64", "$ORIGIN"), interpreter=interpreter),
        binary("libx.so.1"),
    )
    assert found["tool", "libx.so.1"].path == "libx.so.1"


def test_what_a_package_preloads_exists_although_no_search_path_leads_there() -> None:
    cudart = f"{SITE}/nvidia/cu13/lib/libcudart.so.13"
    resolution = resolve(
        Inventory(
            binaries=(binary(f"{SITE}/torch/lib/libtorch.so", "libcudart.so.13"), binary(cudart))
        )
    )
    (entry,) = resolution.needed
    assert (entry.path, entry.rule, entry.anywhere) == (None, None, (cudart,))
    assert resolution.missing == ()


def test_a_mangled_copy_is_known_by_its_soname() -> None:
    copy = f"{SITE}/torchvision.libs/libcudart.3eda8113.so.13"
    found = answers(
        binary(f"{SITE}/torchvision/_C.so", "libcudart.so.13"),
        binary(copy, soname="libcudart.so.13"),
    )
    assert found["_C.so", "libcudart.so.13"].anywhere == (copy,)


def test_a_soname_that_exists_nowhere_is_missing_and_tells_what_was_searched() -> None:
    resolution = resolve(
        Inventory(
            binaries=(
                binary("usr/lib/libc.so.6"),
                binary("opt/app/_c.so", "libcudart.so.12", runpath=("$ORIGIN/../lib",)),
            ),
            library_folders=("usr/local/cuda/lib64",),
            environment={"LD_LIBRARY_PATH": "/opt/nvidia:relative::"},
        )
    )
    (entry,) = resolution.missing
    assert entry.searched == (
        "/opt/nvidia",
        "/opt/app/../lib",
        "/usr/local/cuda/lib64",
        "/lib",
        "/usr/lib",
    )
    assert resolution.is_root


def test_a_library_of_another_machine_does_not_count_as_existing() -> None:
    found = answers(
        binary("a/_c.so", "libx.so"),
        binary("b/libx.so", machine="aarch64"),
        binary("c/libx.so", machine="386", bits=32),
    )
    assert found["_c.so", "libx.so"].anywhere == ()


@pytest.mark.parametrize(
    ("libc", "wanted", "expected"),
    [
        ("usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib64/libx.so", None),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/libx.so", "default"),
        ("usr/lib64/libc.so.6", "usr/lib64/libx.so", "default"),
        ("usr/lib64/libc.so.6", "usr/lib/libx.so", None),
        ("usr/lib/libc.so.6", "usr/lib/libx.so", "default"),
    ],
)
def test_default_folders_are_those_of_the_tree_s_own_c_library(
    libc: str, wanted: str, expected: str | None
) -> None:
    found = answers(binary(libc), binary(wanted), binary("opt/_c.so", "libx.so"))
    assert found["_c.so", "libx.so"].rule == expected


def test_a_merged_usr_and_further_names_are_followed() -> None:
    found = answers(
        binary("usr/lib/libc.so.6"),
        binary("usr/lib/libx.so.1.2", soname="libx.so.1"),
        binary("bin/program", "libx.so.1", "liby.so", interpreter="/lib/ld.so", runpath=("/lib",)),
        links=(
            Link("lib", "usr/lib"),
            Link("usr/lib/libx.so.1", "/lib/libx.so.1.2"),
            Link("usr/lib/liby.so", "/usr/lib/libx.so.1.2", hard=True),
        ),
    )
    assert found["program", "libx.so.1"].path == "usr/lib/libx.so.1.2"
    assert found["program", "liby.so"].path == "usr/lib/libx.so.1.2"


def test_links_never_lead_out_of_the_tree_and_loops_end() -> None:
    found = answers(
        binary("lib/libx.so"),
        binary("opt/_c.so", "libx.so", "loop.so", "long.so", runpath=("/up", "/opt/loops")),
        links=(
            Link("up", "../../../../../lib"),
            Link("opt/loops/loop.so", "loop.so"),
            *(Link(f"opt/loops/{n}", f"{n + 1}") for n in range(100)),
            Link("opt/loops/long.so", "0"),
        ),
    )
    assert found["_c.so", "libx.so"].path == "lib/libx.so"
    assert found["_c.so", "loop.so"].path is None
    assert found["_c.so", "long.so"].path is None


def test_tokens_are_replaced_in_both_spellings() -> None:
    found = answers(
        binary("usr/lib/x86_64-linux-gnu/libc.so.6"),
        binary("opt/lib/x86_64-linux-gnu/libx.so"),
        binary("opt/x86_64/liby.so"),
        binary(
            "opt/bin/program",
            "libx.so",
            "liby.so",
            runpath=("${ORIGIN}/../$LIB", "$ORIGIN/../$PLATFORM"),
        ),
    )
    assert found["program", "libx.so"].rule == "runpath"
    assert found["program", "liby.so"].rule == "runpath"


def test_a_name_with_a_slash_is_a_path() -> None:
    found = answers(
        binary("opt/libx.so"), binary("opt/_c.so", "/opt/libx.so", "$ORIGIN/libx.so", "./libx.so")
    )
    assert found["_c.so", "/opt/libx.so"].rule == "path"
    assert found["_c.so", "$ORIGIN/libx.so"].rule == "path"
    # Where a process stands is unknown; that the file exists is not.
    assert found["_c.so", "./libx.so"].path is None
    assert found["_c.so", "./libx.so"].anywhere == ("opt/libx.so",)


def test_a_site_packages_is_no_root_file_system() -> None:
    assert not resolve(Inventory(binaries=(binary("x/_c.so", "libc.so.6"),))).is_root


def test_libraries_that_need_each_other_are_traced() -> None:
    found = answers(
        binary("lib/liba.so", "libb.so"), binary("lib/libb.so", "liba.so"), binary("lib/libc.so.6")
    )
    assert found["liba.so", "libb.so"].path == "lib/libb.so"
    assert found["libb.so", "liba.so"].path == "lib/liba.so"


def test_a_tree_that_takes_too_long_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MOST_LOOKUPS", 50)
    names = [f"lib{n}.so" for n in range(30)]
    resolution = resolve(
        Inventory(binaries=tuple(binary(f"bin/{n}", *names, type="exec") for n in range(30)))
    )
    assert resolution.unread
    assert all("were not followed" in unread.why for unread in resolution.unread)
    assert len({n.binary for n in resolution.needed}) < 30
