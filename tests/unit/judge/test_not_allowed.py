"""BM608 and BM609: lists of distributions, libraries and licenses."""

from __future__ import annotations

import pytest
from rulecases import SITE, codes, elf, file, image, lock, of_image, only, pin, target

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Distribution, Inventory
from buildmatrix.judge.licenses import check_expressions, licenses
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import Listed, Lists, Policy, Position

CPU = target("cpu")


def listed(*texts: str, backend: str = "*") -> dict[str, tuple[Listed, ...]]:
    return {backend: tuple(Listed(text, Position("buildmatrix.toml", 41)) for text in texts)}


def forbid(kind: str, *texts: str, backend: str = "*") -> Policy:
    return Policy(forbid=Lists(**{kind: listed(*texts, backend=backend)}))


def allow(kind: str, *texts: str, backend: str = "*") -> Policy:
    return Policy(allow=Lists(**{kind: listed(*texts, backend=backend)}))


def ours(findings: tuple[Finding, ...]) -> list[str]:
    return [item for item in codes(findings) if item.startswith(("BM608", "BM609"))]


@pytest.mark.parametrize(
    ("entry", "meant"),
    [
        ("demo", True),
        ("Demo", True),
        ("demo<3", True),
        ("demo >=2,<3", True),
        ("demo==2.1.0", True),
        ("dem*", True),
        ("demo<2", False),
        ("demo==2.1.0.post1", False),
        ("demo-extra", False),
        ("dem", False),
    ],
)
def test_a_distribution_by_name_and_range(entry: str, meant: bool) -> None:
    tree = image(installed=["demo 2.1.0+cpu"])
    found = of_image(CPU, tree, forbid("distributions", entry))
    assert ours(found) == (["BM608 demo"] if meant else [])


def test_a_finding_names_the_line_and_who_asked() -> None:
    tree = image(installed=["demo 2.1.0"])
    locked = lock(pin("demo 2.1.0", "app"), pin("app 1", "base.in:3"))
    one = only(of_image(CPU, tree, forbid("distributions", "demo<3"), locked), "BM608")
    assert "`forbid-distributions` under [policy] has `demo<3` (buildmatrix.toml:41)" in one.message
    assert one.chain == ("base.in:3", "app 1", "demo 2.1.0")
    assert one.severity == "error"


def test_a_version_that_is_none_is_forbidden_and_not_allowed() -> None:
    tree = image(installed=["demo unknown"])
    assert ours(of_image(CPU, tree, forbid("distributions", "demo<1"))) == ["BM608 demo"]
    assert ours(of_image(CPU, tree, allow("distributions", "demo<1"))) == ["BM608 demo"]


def test_a_list_of_another_backend_says_nothing() -> None:
    tree = image(installed=["demo 1"])
    assert ours(of_image(CPU, tree, forbid("distributions", "demo", backend="cuda"))) == []
    assert ours(of_image(CPU, tree, forbid("distributions", "demo", backend="cpu"))) != []


def test_what_a_list_does_not_allow_is_an_error() -> None:
    tree = image(installed=["demo 1", "other 1"])
    one = only(of_image(CPU, tree, allow("distributions", "demo")), "BM608")
    assert one.distribution == "other"
    assert "`allow-distributions` under [policy] does not list it" in one.message


def test_what_is_forbidden_stays_so_whatever_is_allowed() -> None:
    tree = image(installed=["demo 1"])
    both = Policy(
        allow=Lists(distributions=listed("demo")), forbid=Lists(distributions=listed("dem*"))
    )
    assert ours(of_image(CPU, tree, both)) == ["BM608 demo"]


@pytest.mark.parametrize(
    ("glob", "found"),
    [("libfoo.so.1", True), ("libfoo.so*", True), ("libfoo-1.so", True), ("libfoo.so.2", False)],
)
def test_a_library_by_its_soname_or_its_file(glob: str, found: bool) -> None:
    tree = image(file("demo.libs/libfoo-1.so", elf("libfoo-9335f6a2.so.1"), "demo 1"))
    assert ours(of_image(CPU, tree, forbid("libraries", glob))) == (["BM608 demo"] if found else [])


def test_a_forbidden_library_of_the_system_is_found_too() -> None:
    tree = image(file("usr/lib/libfoo.so.1", elf("libfoo.so.1")))
    one = only(of_image(CPU, tree, forbid("libraries", "libfoo.so.1")), "BM608")
    assert one.path == "usr/lib/libfoo.so.1"


def test_only_libraries_with_a_soname_have_to_be_allowed() -> None:
    tree = image(
        file("demo/_C.so", elf(), "demo 1"),
        file("demo/liba.so", elf("liba.so"), "demo 1"),
        file("demo/libb.so", elf("libb.so"), "demo 1"),
        file("usr/lib/libc2.so", elf("libc2.so")),
    )
    one = only(of_image(CPU, tree, allow("libraries", "liba.so")), "BM608")
    assert one.path == f"{SITE}/demo/libb.so"


def test_two_entries_are_two_findings() -> None:
    tree = image(
        file("demo/liba.so", elf("liba.so"), "demo 1"),
        file("demo/libb.so", elf("libb.so"), "demo 1"),
    )
    found = [
        item
        for item in of_image(CPU, tree, forbid("libraries", "liba.so", "libb.so"))
        if item.rule == "BM608"
    ]
    assert len({item.fingerprint for item in found}) == 2


def licensed(**fields: object) -> Inventory:
    tree = image(installed=["demo 1"])
    (item,) = tree.distributions
    return replace(tree, distributions=(replace(item, **fields),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "forbidden", "found"),
    [
        ({"license_expression": "MIT"}, "GPL-*", []),
        ({"license_expression": "GPL-3.0-only"}, "GPL-*", ["BM608 demo"]),
        ({"license_expression": "gpl-3.0-only"}, "GPL-3.0-only", ["BM608 demo"]),
        ({"license_expression": "MIT OR GPL-3.0-only"}, "GPL-*", []),
        ({"license_expression": "MIT AND GPL-3.0-only"}, "GPL-*", ["BM608 demo"]),
        ({"license_expression": "LGPL-3.0-only"}, "GPL-*", []),
        ({"license": "MIT"}, "GPL-*", []),
        ({"license": "Apache License 2.0"}, "Apache-2.0", ["BM608 demo"]),
        ({"license": "see LICENSE"}, "GPL-*", ["BM609 demo"]),
        ({}, "GPL-*", ["BM609 demo"]),
        ({"license_classifiers": ("License :: OSI Approved :: MIT License",)}, "GPL-*", []),
        ({"license_classifiers": ("License :: OSI Approved :: BSD License",)}, "GPL-*", []),
        (
            {"license_classifiers": ("License :: OSI Approved :: BSD License",)},
            "BSD-4-Clause",
            ["BM609 demo"],
        ),
        (
            {"license_classifiers": ("License :: Other/Proprietary License",)},
            "LicenseRef-*",
            ["BM608 demo"],
        ),
        ({"license_expression": "no such license"}, "GPL-*", ["BM609 demo"]),
        ({"license_expression": "(" * 300 + "MIT" + ")" * 300}, "GPL-*", ["BM609 demo"]),
    ],
)
def test_a_license_that_is_forbidden_or_that_nobody_can_tell(
    said: dict[str, object], forbidden: str, found: list[str]
) -> None:
    assert ours(of_image(CPU, licensed(**said), forbid("licenses", forbidden))) == found


@pytest.mark.parametrize(
    ("said", "allowed", "found"),
    [
        ("MIT", ["MIT"], []),
        ("MIT AND BSD-3-Clause", ["MIT", "BSD-*"], []),
        ("MIT AND Zlib", ["MIT"], ["BM608 demo"]),
        ("GPL-3.0-only OR (MIT AND Zlib)", ["MIT", "Zlib"], []),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", ["GPL-3.0-or-later"], []),
        ("GPL-3.0-or-later", ["GPL-3.0-or-later WITH GCC-exception-3.1"], ["BM608 demo"]),
    ],
)
def test_an_allowed_license(said: str, allowed: list[str], found: list[str]) -> None:
    policy = allow("licenses", *allowed)
    assert ours(of_image(CPU, licensed(license_expression=said), policy)) == found


def test_no_list_no_finding() -> None:
    assert ours(of_image(CPU, licensed())) == []


def test_several_classifiers_decide_where_they_agree() -> None:
    item = Distribution(
        "demo",
        "1",
        "demo.dist-info",
        license_classifiers=(
            "License :: OSI Approved :: MIT License",
            "License :: OSI Approved :: GNU General Public License v3 (GPLv3)",
        ),
    )
    held = licenses(item)
    assert held == ("MIT", "GPL-3.0-only")
    entries = listed("GPL-*")["*"]
    assert check_expressions(held, (), entries) == "unknown"
    assert check_expressions(held, (), listed("AGPL-*")["*"]) == "yes"
    assert check_expressions(held, (), listed("GPL-*", "MIT")["*"]) == "no"
