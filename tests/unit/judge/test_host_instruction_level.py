"""BM709: what the processors of a node class cannot run."""

from __future__ import annotations

import pytest
from rulecases import codes, elf, file, image, of_image, only, target

from buildmatrix.base.data import replace
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import NodeClass, Position, Target


def node(cpu: str, name: str = "edge") -> NodeClass:
    return NodeClass(name, "cpu", "", (), {}, (), Position("buildmatrix.toml", 1), cpu=cpu)


def on(*nodes: NodeClass, platform: str = "linux/amd64") -> Target:
    return replace(target("cpu", platform=platform), node_classes=nodes)


V2 = on(node("x86-64-v2"))


def needs(level: str | None, used: str | None = None) -> Elf:
    return replace(elf(), isa_needed=level, isa_used=used)


def extension(level: str | None, path: str = "demo/_C.abi3.so", used: str | None = None) -> Binary:
    return replace(file(path, needs(level, used), "demo 1"), reach="import")


def of_level(where: Target, *files: Binary) -> list[str]:
    return [code for code in codes(of_image(where, image(*files))) if code.startswith("BM709")]


def finding_of(where: Target, *files: Binary) -> Finding:
    return only(of_image(where, image(*files)), "BM709")


def test_a_library_that_needs_more_than_the_machines_have_is_an_error() -> None:
    finding = finding_of(V2, extension("x86-64-v4"))
    assert finding.severity == "error"
    assert finding.message == (
        "demo 1 has _C.abi3.so, which needs x86-64-v4, and edge has x86-64-v2: ld.so of glibc 2.33 "
        "and newer refuses to load it there, and an import loads it"
    )
    assert finding.fix is not None
    assert finding.fix.text.startswith("take a build of demo for x86-64-v2, or take")
    assert finding.chain[-1] == "needs x86-64-v4"


@pytest.mark.parametrize("level", [None, "x86-64", "x86-64-v2"])
def test_what_the_machines_have_is_quiet(level: str | None) -> None:
    assert of_level(V2, extension(level)) == []


def test_code_that_is_used_and_not_needed_proves_nothing() -> None:
    assert of_level(V2, extension(None, used="x86-64-v4")) == []
    assert of_level(V2, extension("x86-64", used="x86-64-v4")) == []


def test_a_class_that_does_not_say_its_level_is_not_judged() -> None:
    assert of_level(on(node("")), extension("x86-64-v4")) == []
    assert of_level(on(), extension("x86-64-v4")) == []


def test_each_class_that_is_too_old_is_named_once() -> None:
    where = on(node("x86-64-v4", "new"), node("x86-64-v3", "mid"), node("x86-64", "old"))
    finding = finding_of(where, extension("x86-64-v4"), extension("x86-64-v2", "demo/_B.abi3.so"))
    assert "_B.abi3.so, _C.abi3.so, which needs x86-64-v4, and " in finding.message
    assert "old has x86-64" in finding.message and "mid has x86-64-v3" in finding.message
    assert "new" not in finding.message.partition("glibc")[0]


@pytest.mark.parametrize(
    ("folder", "level", "refused"),
    [
        # ld.so of a v2 machine looks into no folder of v3, and into that of v2.
        ("glibc-hwcaps/x86-64-v3", "x86-64-v4", False),
        ("glibc-hwcaps/x86-64-v2", "x86-64-v3", True),
        ("glibc-hwcaps/strange", "x86-64-v3", True),
    ],
)
def test_what_the_loader_chooses_by_the_processor_is_quiet(
    folder: str, level: str, refused: bool
) -> None:
    path = f"usr/lib/x86_64-linux-gnu/{folder}/libx.so.1"
    assert of_level(V2, file(path, needs(level))) == ["BM709"] * refused


@pytest.mark.parametrize(
    ("reach", "severity"), [("import", "error"), ("guarded", "note"), ("lazy", "note")]
)
def test_what_is_chosen_at_run_time_is_no_error(reach, severity) -> None:
    binary = replace(file("faiss/_avx512.so", needs("x86-64-v4"), "faiss 1"), reach=reach)
    assert finding_of(V2, binary).severity == severity


def test_a_program_of_the_system_is_refused_too() -> None:
    finding = finding_of(V2, file("usr/bin/demo", needs("x86-64-v3")))
    assert (finding.severity, finding.distribution) == ("error", None)


def test_an_object_of_another_machine_has_no_such_level() -> None:
    binary = extension("x86-64-v4")
    assert of_level(V2, replace(binary, elf=replace(binary.elf, machine="386"))) == []


def test_what_lies_in_an_archive_is_loaded_by_nobody() -> None:
    assert of_level(V2, replace(extension("x86-64-v4"), container="demo/x.zip")) == []
