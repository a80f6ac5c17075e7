"""The grid: artifacts, variants, instructions, and what nobody knows (BM606, BM708 to BM710)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest
from nodecases import cudart, node, on
from rulecases import elf, file, image, sass, target
from test_artifact_rules import A100, BLOB, CACHE, CUBIN, H100, OLDER, engine, installed, machines
from test_variant_against_bytes import variant

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.judge.judging import Judge, Judgement, judge_image
from buildmatrix.judge.model import TargetResult
from buildmatrix.matrix.model import NodeClass, Policy, Position, Target, Waiver, bare_spec
from buildmatrix.reports.run import assemble, exit_code


def judged(where: Target, tree: Inventory) -> Judgement:
    return judge_image(where, tree, evidence(tree, load()), None, load(), Policy())


def states(where: Target, tree: Inventory) -> dict[str, str]:
    """Node class → state, with the rules that say so; each of these has a finding."""
    judgement = judged(where, tree)
    named = {reason.rule for cell in judgement.fits for reason in cell.reasons if reason.rule}
    assert named <= {finding.rule for finding in judgement.findings}
    return {
        cell.node: " ".join(
            [cell.state, *sorted({reason.rule for reason in cell.reasons if reason.rule})]
        )
        for cell in judgement.fits
    }


def tree_of(root: Path, files: Mapping[str, bytes]) -> Inventory:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    with DirectoryTree(root) as tree:
        return collect(tree)


# Artifacts


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"app/a.cubin": CUBIN}, {"a100": "refused BM606", "h100": "ok"}),
        # One engine for each class.
        (
            {"app/a.plan": engine(contents=OLDER), "app/b.plan": engine(contents=CUBIN)},
            {"a100": "ok BM606", "h100": "ok BM606"},
        ),
        ({CACHE: CUBIN}, {"a100": "jit BM606", "h100": "ok"}),
        ({"app/a.plan": engine()}, {"a100": "undecided BM606", "h100": "undecided BM606"}),
        (
            {"app/x_sm90.engine": engine()},
            {"a100": "undecided BM606", "h100": "ok"},
        ),
        (
            {"app/a.plan": engine(10, 8, 0, 43, contents=OLDER + CUBIN)}
            | installed("tensorrt-cu12", "10.3.0"),
            {"a100": "refused BM606", "h100": "refused BM606"},
        ),
        (
            {"app/a.plan": engine(10, 3, 0, 26, contents=OLDER + CUBIN)}
            | installed("tensorrt-cu12", "10.8.0"),
            {"a100": "undecided BM606", "h100": "undecided BM606"},
        ),
    ],
)
def test_artifacts_on_each_class(
    tmp_path: Path, files: dict[str, bytes], expected: dict[str, str]
) -> None:
    assert states(machines("cuda", A100, H100), tree_of(tmp_path, files)) == expected


def test_an_artifact_on_a_class_of_unknown_devices_is_undecided(tmp_path: Path) -> None:
    where = machines("cuda", H100, ("lab", [], ""))
    seen = states(where, tree_of(tmp_path, {"app/a.cubin": CUBIN}))
    assert seen == {"h100": "ok", "lab": "undecided BM606"}


def test_a_cached_model_is_compiled_again_on_older_processors(tmp_path: Path) -> None:
    where = machines("cpu", ("new", [], "x86-64-v4"), ("old", [], "x86-64-v2"), ("lab", [], ""))
    assert states(where, tree_of(tmp_path, {"opt/net.blob": BLOB})) == {
        "new": "ok",
        "old": "jit BM606",
        "lab": "undecided BM606",
    }


# Variants and instructions


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (["nvidia :: sm_arch :: 90_real"], {"a": "refused BM708", "b": "ok"}),
        (["nvidia :: sm_arch :: 90_real", "nvidia :: sm_arch :: 80_real"], {"a": "ok", "b": "ok"}),
        (["acme :: color :: red"], {"a": "undecided BM710", "b": "undecided BM710"}),
        (["x86_64 :: level :: v3"], {"a": "undecided", "b": "undecided"}),
    ],
)
def test_variants_on_each_class(properties: list[str], expected: dict[str, str]) -> None:
    where = on(node("570.26", "sm_80", name="a"), node("570.26", "sm_90", name="b"))
    assert states(where, variant(*properties)) == expected


@pytest.mark.parametrize(
    ("owner", "reach", "state"),
    [
        ("demo 1", "import", "refused BM709"),
        ("demo 1", "lazy", "ok BM709"),
        ("demo 1", None, "undecided BM709"),
        (None, None, "refused BM709"),
    ],
)
def test_instructions_on_each_class(owner: str | None, reach: str | None, state: str) -> None:
    demanding = replace(elf(), isa_needed="x86-64-v4")
    tree = image(replace(file("demo/a.so", demanding, owner), reach=reach))
    at = Position("buildmatrix.toml", 1)
    nodes = [
        NodeClass(name, "cpu", "", (), {}, (), at, cpu=cpu)
        for name, cpu in (("old", "x86-64-v2"), ("new", "x86-64-v4"), ("lab", ""))
    ]
    where = replace(target("cpu"), node_classes=tuple(nodes))
    assert states(where, tree) == {"old": state, "new": "ok", "lab": "ok"}


# What nobody knows


UNKNOWN = image(file("acme/libacme.so", elf(marks=["cudart-error-string"]), "acme 1.0"))
NEWER = image(cudart("13.9.1"))
KNOWN = image(cudart(), file("acme/lib.so", elf(device_code=sass("sm_90")), "acme 1.0"))


@pytest.mark.parametrize(
    ("tree", "driver", "archs", "code", "strict"),
    [
        (UNKNOWN, "570.26", ("sm_90",), 3, 1),
        (NEWER, "999.1", ("sm_90",), 3, 1),
        # What the specification does not say is the choice of who wrote it.
        (UNKNOWN, "", ("sm_90",), 0, 1),
        (KNOWN, "", ("sm_90",), 0, 1),
        (KNOWN, "570.26", (), 0, 1),
        (KNOWN, "570.26", ("sm_90",), 0, 0),
    ],
)
def test_the_exit_code_of_what_is_undecided(
    tree: Inventory, driver: str, archs: tuple[str, ...], code: int, strict: int
) -> None:
    assert exit_codes(tree, node(driver, *archs)) == (code, strict)


def exit_codes(tree: Inventory, where: NodeClass, *waivers: Waiver) -> tuple[int, int]:
    """That of a scan, and the same with `--strict`."""
    runs_on = on(where, runtime="any")
    spec = replace(bare_spec(runs_on), waivers=waivers)
    judge = Judge(spec, "error", date(2026, 11, 22))
    judgement = judge.image(runs_on, tree, None)
    gates = {"scan": judge.gate(judgement.findings)}
    result = TargetResult("x", "cuda", gates=gates, nodes=judgement.fits)
    report = assemble("x", "2026-11-22", targets=[result], findings=judgement.findings)
    return exit_code(report), exit_code(report, strict=True)


def test_what_nobody_knows_can_be_accepted() -> None:
    at = Position("buildmatrix.toml", 1)
    waiver = Waiver("BM710", (), None, None, "it ran", "me", date(2999, 1, 1), at)
    assert exit_codes(UNKNOWN, node("570.26", "sm_90"), waiver) == (0, 0)
