"""BM305: symbols and versions that the library at hand lacks."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Sequence

import pytest
from rulecases import elf, file, image, of_image, only, target

from buildmatrix.base.data import replace
from buildmatrix.facts.elf.model import Binding, SymbolNeed, VersionNeed
from buildmatrix.facts.elf.symbols import gnu_hash
from buildmatrix.facts.inventory.model import Binary, ClosedFile, Inventory
from buildmatrix.facts.python_imports import Reach

LINK = "libnvJitLink.so.12"
OLD, NEW = "__nvJitLinkCreate_12_1", "__nvJitLinkCreate_12_8"
CUDA = target("cuda", runtime="12.8")


def binding(defined: Sequence[str] = (), *needs: SymbolNeed) -> Binding:
    hashes = b"".join(struct.pack("<I", gnu_hash(name)) for name in defined)
    return Binding(needs, b64encode(hashes).decode())


def linker(path: str, owner: str | None, *defined: str) -> Binary:
    facts = replace(elf(LINK), binding=binding(defined), version_definitions=(LINK,))
    return file(path, facts, owner)


def sparse(owner: str = "nvidia-cusparse-cu12 12.5.8.93", reach: Reach = "unknown") -> Binary:
    need = SymbolNeed((NEW,), LINK, LINK)
    facts = replace(
        elf("libcusparse.so.12", [LINK]),
        binding=binding((), need),
        runpath=("$ORIGIN/../../nvjitlink/lib",),
        version_needs=(VersionNeed(LINK, (LINK,)),),
    )
    return replace(file("nvidia/cusparse/lib/libcusparse.so.12", facts, owner), reach=reach)


def beside(version: str, *defined: str) -> Binary:
    owner = f"nvidia-nvjitlink-cu12 {version}"
    return linker(f"nvidia/nvjitlink/lib/{LINK}", owner, *defined)


@pytest.mark.parametrize("root", [True, False])
def test_both_sides_of_a_missing_symbol_are_named(root: bool) -> None:
    tree = image(sparse(), beside("12.1.105", OLD), root=root)
    tree = replace(tree, binaries=tuple(with_libc(item) for item in tree.binaries))
    finding = only(of_image(CUDA, tree), "BM305")
    assert finding.severity == "error"
    for text in (NEW, "nvidia-cusparse-cu12 12.5.8.93", LINK, "nvidia-nvjitlink-cu12 12.1.105"):
        assert text in finding.message
    fits = image(sparse(), beside("12.8.93", OLD, NEW), root=root)
    assert not [item for item in of_image(CUDA, fits) if item.rule == "BM305"]


def test_a_closed_file_of_that_name_may_be_the_one_that_is_loaded() -> None:
    tree = image(sparse(), beside("12.1.105", OLD), root=False)
    only(of_image(CUDA, tree), "BM305")
    for path, expected in ((f"other/lib/{LINK}", 0), ("other/lib/libother.so.1", 1)):
        shallow = replace(tree, closed=(ClosedFile(path, 1, "other==1"),))
        assert [item.rule for item in of_image(CUDA, shallow)].count("BM305") == expected


def with_libc(binary: Binary) -> Binary:
    """`binary` with known symbols, where it is the C library."""
    return (
        binary
        if binary.elf.binding
        else replace(binary, elf=replace(binary.elf, binding=Binding()))
    )


def test_an_older_library_in_front_of_the_right_one_is_found() -> None:
    old = linker(f"opt/cuda/lib64/{LINK}", None, OLD)
    tree = image(
        sparse(),
        beside("12.8.93", OLD, NEW),
        old,
        environment={"LD_LIBRARY_PATH": "/opt/cuda/lib64"},
    )
    findings = of_image(CUDA, replace(tree, binaries=tuple(map(large, tree.binaries))))
    finding = only(findings, "BM305")
    assert finding.severity == "error"
    assert f"opt/cuda/lib64/{LINK} of the base" in finding.message
    assert finding.fix is not None
    assert f"take opt/cuda/lib64/{LINK} out of the loader's way" in finding.fix.text
    assert f"nvidia/nvjitlink/lib/{LINK}" in finding.fix.text
    # It is no waste, and is said once.
    assert not [item for item in findings if item.rule in ("BM304", "BM706")]


def large(binary: Binary) -> Binary:
    return replace(binary, size=90_000_000)


# No symbol is missing, and the library is older than the one that came with its user


def sparse_of_any() -> Binary:
    binary = sparse()
    return replace(binary, elf=replace(binary.elf, binding=binding((), SymbolNeed((OLD,)))))


@pytest.mark.parametrize(
    ("package", "symbols", "expected"),
    [
        # By its symbols, where nothing says its version.
        ("", (OLD,), "lacks 1 of its 2 symbols"),
        ("", (OLD, NEW), None),
        ("", (OLD, "another"), None),
        ("libnvjitlink-12-1 12.1.105-1", (OLD,), "which is 12.1.105:"),
        ("libnvjitlink-12-9 12.9.86-1", (OLD,), None),
    ],
)
@pytest.mark.parametrize("requires", [True, False])
def test_an_older_library_in_front_that_has_all_symbols(
    package: str, symbols: tuple[str, ...], expected: str | None, requires: bool
) -> None:
    folder = "opt/cuda/lib64"
    tree = image(
        sparse_of_any(),
        beside("12.8.93", OLD, NEW),
        linker(f"{folder}/{LINK}", None, *symbols),
        environment={"LD_LIBRARY_PATH": f"/{folder}"},
        requires={"nvidia-cusparse-cu12": ["nvidia-nvjitlink-cu12"]} if requires else {},
    )
    packaged = {f"{folder}/{LINK}": package} if package else {}
    tree = replace(tree, packaged=packaged, binaries=tuple(map(large, tree.binaries)))
    findings = [item for item in of_image(CUDA, tree) if item.rule in ("BM304", "BM305", "BM706")]
    if not requires or expected is None:
        assert [item.rule for item in findings] == ["BM304"]
        return
    (finding,) = findings
    assert (finding.rule, finding.severity) == ("BM706", "warning")
    assert expected in finding.message
    assert f"LD_LIBRARY_PATH leads it to {folder}/{LINK}" in finding.message
    assert "nvidia-nvjitlink-cu12 12.8.93" in finding.message


@pytest.mark.parametrize(
    ("owner", "reach", "expected"),
    [
        # Both files of one distribution: who opens them may bind functions late.
        ("nvidia-nvjitlink-cu12 12.1.105", "unknown", "note"),
        ("nvidia-nvjitlink-cu12 12.1.105", "import", "error"),
        ("demo 1", "import", "error"),
        ("demo 1", "guarded", "warning"),
        ("demo 1", "lazy", "warning"),
    ],
)
def test_how_bad_it_is_depends_on_who_loads_it(owner: str, reach: Reach, expected: str) -> None:
    tree = image(sparse(owner, reach), beside("12.1.105", OLD))
    assert only(of_image(CUDA, tree), "BM305").severity == expected


def test_a_version_of_the_c_library_that_the_image_lacks() -> None:
    tree = image(
        file(
            "demo/_c.abi3.so",
            replace(
                elf(None, ["libc.so.6"]),
                binding=Binding(),
                version_needs=(VersionNeed("libc.so.6", ("GLIBC_2.17", "GLIBC_2.38")),),
            ),
            "demo 1",
        )
    )
    assert not [item for item in of_image(CUDA, tree) if item.rule == "BM305"]
    assert "GLIBC_2.38" in only(of_image(CUDA, with_versions(tree)), "BM305").message


def with_versions(tree: Inventory) -> Inventory:
    """`tree` with a C library that has versions up to 2.36."""
    versions = ("libc.so.6", "GLIBC_2.17", "GLIBC_2.36")
    return replace(
        tree,
        binaries=tuple(
            replace(item, elf=replace(item.elf, version_definitions=versions))
            if item.path.endswith("/libc.so.6")
            else item
            for item in tree.binaries
        ),
    )
