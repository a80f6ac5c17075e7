"""The site-packages that a set of wheels would become."""

from __future__ import annotations

from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import (
    Binary,
    ClosedFile,
    Distribution,
    Inventory,
    PythonImport,
    Stats,
    Unread,
)
from buildmatrix.facts.loader import resolve
from buildmatrix.facts.trees.wheel import Member
from buildmatrix.sources.wheels_on_index import merge


def elf(**fields: object) -> Elf:
    return Elf(bits=64, little_endian=True, machine="x86_64", type="dyn", **fields)  # type: ignore[arg-type]


def part(name: str, **fields: object) -> Inventory:
    found = Distribution(name, "1", f"{name}-1.dist-info")
    return Inventory(distributions=(found,), **fields)  # type: ignore[arg-type]


def test_a_library_of_one_wheel_resolves_what_another_one_needs() -> None:
    needs = part(
        "alpha",
        binaries=(
            Binary("alpha/_c.so", 9, elf(needed=("libx.so.1",), runpath=("$ORIGIN/../beta/lib",))),
        ),
    )
    has = part("beta", binaries=(Binary("beta/lib/libx.so.1", 9, elf(soname="libx.so.1")),))
    merged = merge([needs, has])
    assert [one.name for one in merged.distributions] == ["alpha", "beta"]
    (edge,) = [one for one in resolve(merged).needed if one.name == "libx.so.1"]
    assert edge.path == "beta/lib/libx.so.1"


def test_the_order_of_the_wheels_changes_nothing() -> None:
    parts = [
        part("b", closed=(ClosedFile("b/x.so", 5, "b==1"),), unread=(Unread("b/y", "why"),)),
        part("a", binaries=(Binary("a/x.so", 5, elf(), "a==1"),), stats=Stats(3, 1, 10, 5, 0.5, 0)),
    ]
    assert merge(parts) == merge(parts[::-1])
    merged = merge(parts)
    assert [one.path for one in merged.closed] == ["b/x.so"]
    assert [one.path for one in merged.unread] == ["b/y"]
    assert merged.stats == Stats(3, 1, 10, 5, 0.5, 0)


def test_a_path_of_two_wheels_is_told_with_whether_they_agree() -> None:
    parts = [part("triton"), part("triton-rocm")]
    members = [
        [Member("triton/__init__.py", 10, 5, 1), Member("triton/_C/libtriton.so", 9, 5, 1)],
        [Member("triton/__init__.py", 10, 6, 1), Member("triton/_C/libtriton.so", 9, 5, 2)],
    ]
    owners = ("triton-rocm==1", "triton==1")
    assert [(one.path, one.owners, one.matches) for one in merge(parts, members).shared_paths] == [
        ("triton/_C/libtriton.so", owners, ()),
        ("triton/__init__.py", owners, owners),
    ]


def test_the_same_crc_with_another_size_is_another_file() -> None:
    members = [[Member("x/a.so", 10, 5, 1)], [Member("x/a.so", 11, 5, 1)]]
    (shared,) = merge([part("a"), part("b")], members).shared_paths
    assert shared.matches == ()


def test_without_lists_of_files_only_what_the_inventories_name_is_compared() -> None:
    first = part("a", closed=(ClosedFile("x/a.so", 5),))
    second = part("b", binaries=(Binary("x/a.so", 5, elf()),))
    (shared,) = merge([first, second]).shared_paths
    assert (shared.path, shared.owners, shared.matches) == ("x/a.so", ("a==1", "b==1"), None)


def test_an_import_is_led_to_the_wheel_that_has_the_module() -> None:
    def imports(module: str) -> PythonImport:
        return PythonImport(f"a/{module}.py", 1, module, "imported", "a==1")

    first = part("a", python_imports=tuple(map(imports, ("torch", "cuda.bindings.driver", "json"))))
    members = [
        [Member("a/__init__.py", 5, 5, 1)],
        [
            Member("torch/__init__.py", 5, 5, 1),
            Member("cuda/bindings/driver.cpython-312-x86_64-linux-gnu.so", 5, 5, 1),
        ],
    ]
    merged = merge([first, part("b")], members)
    assert {one.module: one.provider for one in merged.python_imports} == {
        "torch": "b==1", "cuda.bindings.driver": "b==1", "json": None,
    }  # fmt: skip


def test_no_module_in_a_wheel_with_a_pth_file_is_missing() -> None:
    missing = PythonImport("a/__init__.py", 1, "cutlass.base", "missing", "a==1")
    first = part("a", python_imports=(missing,))
    below = Member("dsl/packages/cutlass/base.py", 5, 5, 1)
    for pth, found in (("dsl.pth", ()), ("dsl/x.pth", (missing,))):
        members = [[Member("a/__init__.py", 5, 5, 1)], [below, Member(pth, 5, 5, 1)]]
        assert merge([first, part("b")], members).python_imports == found


def test_nothing_merges_to_nothing() -> None:
    assert merge([]) == Inventory()
