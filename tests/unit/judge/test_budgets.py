"""BM603: each budget at its limit and above it, and which key counts."""

from __future__ import annotations

import pytest
from rulecases import codes, elf, file, image, lock, of_image, only, pin, sass, target

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.facts.inventory.model import Layer, Stats
from buildmatrix.judge.locks import wheels
from buildmatrix.judge.sizes import check_size_budget
from buildmatrix.matrix.model import Policy

CPU = target("cpu")
#: `cpu-py311-server`
ID = CPU.id


@pytest.mark.parametrize(
    ("budgets", "limit"),
    [
        ({"*": 4, "cpu": 3, "cpu-*": 2, ID: 1}, 1),
        ({"*": 4, "cpu": 3, "cpu-*": 2}, 2),
        ({"*": 4, "cpu": 3, "cuda*": 2}, 3),
        ({"*": 4, "cuda": 3}, 4),
        ({"cuda": 3}, None),
    ],
)
def test_what_names_the_target_best_counts(budgets: dict[str, int], limit: int | None) -> None:
    assert Policy().budget(budgets, CPU) == limit


@pytest.mark.parametrize(("limit", "found"), [(2, 0), (1, 1)])
def test_layers(limit: int, found: int) -> None:
    tree = replace(image(), layers=(Layer("sha256:0", "", 1), Layer("sha256:1", "", 1)))
    findings = of_image(CPU, tree, Policy(max_layers={"*": limit}))
    assert len([item for item in findings if item.rule == "BM603"]) == found
    if found:
        assert "has 2 layers, and `max-layers` allows 1" in only(findings, "BM603").message


def test_layers_that_nobody_read_are_undecided() -> None:
    one = only(of_image(CPU, image(), Policy(max_layers={"*": 1})), "BM902")
    assert "`max-layers` under [policy] is not checked" in one.message
    assert codes(of_image(CPU, image(), Policy(max_layers={"cuda": 1}))) == []


def test_foreign_bytes_and_size_are_two_findings() -> None:
    tree = image(
        file("xgb/a.so", elf(device_code=sass("sm_80")), "xgb 1", size=90_000_000),
        stats=Stats(bytes_total=100),
    )
    policy = Policy(max_foreign={"cpu": 1_000_000}, max_size={"*": 99})
    found = [item for item in of_image(CPU, tree, policy) if item.rule == "BM603"]
    assert len({item.fingerprint for item in found}) == 2
    assert any("allows 1.0 MB; the largest distributions are xgb" in item.message for item in found)
    assert "BM603" not in {
        item.rule for item in of_image(target("cuda"), tree, Policy(max_foreign={"*": 1}))
    }


@pytest.mark.parametrize(("limit", "found"), [(300, 0), (299, 1)])
def test_downloads_of_wheels(limit: int, found: int) -> None:
    subject = wheels(
        CPU,
        image(installed=["a 1", "b 1"], root=False),
        (),
        lock(pin("a 1"), pin("b 1")),
        load(),
        Policy(max_download={"cpu-*": limit}, max_size={"*": 1}, max_layers={"*": 1}),
        downloads={"a": 100, "b": 200},
    )
    findings = list(check_size_budget(subject))
    assert len(findings) == found
    if found:
        assert "`max-download` allows 299 B; the largest distributions are b" in findings[0].message
