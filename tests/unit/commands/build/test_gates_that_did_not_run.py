"""A gate that was asked for and did not run: one cause, one exit code, one sentence, never green.

The project, its base and the engine oci are real; no command of the image ever runs here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from oci_world import SPEC, TARGET, make_world
from registry import RegistryServer
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.progress import Silent
from buildmatrix.cli import main
from buildmatrix.commands.build_checks import ascent
from buildmatrix.commands.build_work import BuildWork, Options
from buildmatrix.commands.image_gates import ImageGates
from buildmatrix.engines.oci import sandboxes
from buildmatrix.engines.oci.unpacking import Identity
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.model import GATES, ClimbedRung, Gate, GateState, TargetResult
from buildmatrix.locks import status
from buildmatrix.locks.pylock import read_lock
from buildmatrix.matrix.model import Position, Smoke, bare_spec
from buildmatrix.reports import ci, run_html, run_markdown, run_table
from buildmatrix.reports.run import Report, assemble
from buildmatrix.sources.state_folder import BuildRecord, State

KEY = Path(__file__).parents[2] / "signing/vectors/openssl.pem"
SMOKE = """
[[smoke]]
name = "opencv"
level = "import"
command = ["python", "-c", "import cv2"]

[[waive]]
rule = "BM902"
path = "*"
reason = "a stand-in of a few bytes"
owner = "tests"
expires = 2999-01-01
"""
BUILD = (
    "build --engine oci --no-audit --no-vulnerabilities --locked --no-progress "
    "--format json=report.json --format html=page.html --format junit=junit.xml"
)
PUBLISH = f"{BUILD} --push --attest --sign-key {KEY}"

Outcome = tuple[int, str]
STAYS = "its image stays on its builder"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A project whose image was never run or published."""
    place = tmp_path_factory.mktemp("gates")
    with RegistryServer() as server, pytest.MonkeyPatch.context() as patch:
        world = make_world(place, SPEC.replace("registry.example.com", server.host) + SMOKE)
        world.base.layout.publish(world.base.descriptor, [world.base.reference])
        patch.chdir(world.root)
        patch.setenv("BUILDMATRIX_CACHE", str(place / "cache"))
        patch.setenv("BUILDMATRIX_MIRROR", f"oci:{world.base.layout.folder}")
        patch.setenv("DOCKER_CONFIG", str(place / "docker"))
        patch.setattr(status, "current", lambda spec, target: read_lock(spec.root / target.lock))
        yield SimpleNamespace(root=world.root, server=server)


@pytest.fixture
def run(built: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Outcome]:
    def run(command: str) -> Outcome:
        with pytest.raises(SystemExit) as stop:
            main(command.split())
        printed = capsys.readouterr()
        # Lines of a terminal are wrapped.
        return int(stop.value.code or 0), " ".join((printed.out + printed.err).split())

    return run


def no_sandbox(patch: pytest.MonkeyPatch, empty: Path) -> None:
    patch.setattr(os, "geteuid", lambda: 1000)
    patch.setenv("PATH", str(empty))


def broken_sandbox(patch: pytest.MonkeyPatch, empty: Path) -> None:
    (empty / "bwrap").touch(0o755)
    no_sandbox(patch, empty)
    patch.setattr(sandboxes, "failure", lambda sandbox: "no user namespaces here")


def refusing_sandbox(patch: pytest.MonkeyPatch, empty: Path) -> None:
    chroot = SimpleNamespace(name="chroot", confines_root=False)
    patch.setattr(sandboxes, "usable", lambda: (chroot, "chroot"))
    patch.setattr("buildmatrix.engines.oci.engine.identity", lambda *_: Identity(0, 0))


def other_processor(patch: pytest.MonkeyPatch, empty: Path) -> None:
    patch.setattr("platform.machine", lambda: "riscv64")


CAUSES = {
    no_sandbox: (5, "install bubblewrap or crun: either runs the commands of an image"),
    broken_sandbox: (
        5,
        "nothing here can run a command of an image: bwrap (no user namespaces here); allow user "
        "namespaces, or install bubblewrap or crun",
    ),
    refusing_sandbox: (
        5, "chroot does not confine an image that runs as root; install crun or runc",
    ),
    other_processor: (3, "the image is for linux/amd64, and this machine is riscv64"),
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_one_cause_has_one_code_and_one_sentence_in_every_command(
    cause: Callable[[pytest.MonkeyPatch, Path], None],
    built: SimpleNamespace,
    run: Callable[[str], Outcome],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    cause(monkeypatch, tmp_path)
    code, sentence = CAUSES[cause]
    for command in (
        PUBLISH,
        f"{BUILD} --no-smoke --preflight import",
        f"{BUILD} --no-smoke --preflight memory",
        f"smoke {TARGET}",
        f"preflight {TARGET}",
        f"preflight {TARGET} --level import",
    ):
        ended, printed = run(command)
        assert (ended, sentence in printed) == (code, True), (command, ended, printed)
        assert "lack of a device" not in printed


@pytest.mark.parametrize("cause", CAUSES)
def test_what_did_not_run_is_not_published_and_no_report_says_that_it_passed(
    cause: Callable[[pytest.MonkeyPatch, Path], None],
    built: SimpleNamespace,
    run: Callable[[str], Outcome],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    cause(monkeypatch, tmp_path)
    code, sentence = CAUSES[cause]
    assert run(f"{PUBLISH} --save image.tar")[0] == code
    assert not any(item.manifests for item in built.server.repositories.values())
    assert not (built.root / "image.tar").exists()
    (result,) = json.loads((built.root / "report.json").read_text())["targets"]
    assert (result["gates"]["scan"], result["gates"]["smoke"]) == ("passed", "undecided")
    assert (result["push"], result.get("attestation")) == ("not-run", None)
    assert result["image"].startswith("buildmatrix-staged:")
    assert result["error"] == f"smoke command opencv did not run: {sentence}"
    page = (built.root / "page.html").read_text()
    assert "<strong>Undecided</strong>" in page and '<th scope="col">smoke</th>' in page
    assert "Passed" not in page
    assert f"smoke undecided: {result['error']}" in (built.root / "junit.xml").read_text()


def test_what_auto_did_not_run_and_nobody_asked_for_is_a_line(
    built: SimpleNamespace,
    run: Callable[[str], Outcome],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    no_sandbox(monkeypatch, tmp_path)
    path = built.root / "buildmatrix.toml"
    text = path.read_text()
    smoke, _, _ = SMOKE.partition("[[waive]]")
    try:
        path.write_text(text.replace(smoke, ""))
        code, printed = run(BUILD)
        assert (code, "import to cold-start not run (install bubblewrap" in printed) == (0, True)
        # A policy asks for it.
        path.write_text(text.replace(smoke, "") + '[policy]\ngates = { "*" = ["smoke"] }\n')
        code, printed = run(BUILD)
        assert (code, CAUSES[no_sandbox][1] in printed) == (5, True)
    finally:
        path.write_text(text)


def test_an_image_that_stays_on_its_builder_leaves_what_was_asked_for_open(tmp_path: Path) -> None:
    commands = tuple(Smoke(name, "import", ("true",), 1.0, Position("", 1)) for name in ("a", "b"))
    for wanted, smoke, state, errors in (
        ("auto", (), "not-run", []),
        ("auto", commands, "undecided", [f"smoke commands a, b did not run: {STAYS}"]),
        ("device", (), "undecided", [f"`--level device` did not run: {STAYS}"]),
        ("device", commands, "undecided", [f"smoke commands a, b did not run: {STAYS}"]),
    ):
        work = BuildWork(replace(target("cpu"), smoke=smoke), State(tmp_path).target_files("cpu"))
        work.record = record()
        gates_of(work, wanted)._smoke(work)
        assert (work.gates["smoke"], work.errors, work.codes) == (state, errors, [])
        assert {rung.why for rung in work.rungs or ()} == {STAYS}


def test_what_auto_left_to_others_is_run_where_it_is_asked_for(tmp_path: Path) -> None:
    """The journal knows how far `auto` got with the image: up to the same rung, and not over it."""
    work = BuildWork(target("cuda", "12.8"), State(tmp_path).target_files("cuda"))
    gates = gates_of(work, "auto")
    way = ascent(work.target, "import", gates.judge)
    known = record(
        loaded=True,
        tags=("i:1",),
        climbed=way.digest(""),
        rungs=(ClimbedRung("import", "not-run", "these need the driver of a node: tensorrt"),),
    )
    assert gates._climb(work, known, way) is known
    assert (work.gates["smoke"], work.errors) == ("not-run", [])
    gates_of(work, "import")._climb(work, known, way)
    assert (work.gates["smoke"], work.errors) == (
        "undecided", ["`--level import` did not run: the engine was asked"]
    )  # fmt: skip


def record(**more: Any) -> BuildRecord:
    fields: dict[str, Any] = {"loaded": False, "tags": (), **more}
    return BuildRecord(key="", digest="", config=None, inventory="", seconds=0, **fields)


def gates_of(work: BuildWork, wanted: str) -> Any:
    """The gates of an engine that runs nothing."""
    spec, never = bare_spec(work.target), UndecidedError("the engine was asked")
    return ImageGates(
        spec,
        Options(preflight=cast(Any, wanted)),
        cast(Any, SimpleNamespace(cannot_run=lambda reference: never)),
        Judge(spec, "error", date(2026, 11, 26), ()),
        Silent(),
        cast(Any, None),
    )


def test_commands_that_were_left_to_a_device_are_named_and_never_passed() -> None:
    gates: dict[Gate, GateState] = dict.fromkeys(GATES, "passed")
    left = ("warmup (device)",)
    said = "ot run for lack of a device: smoke warmup (device) of "
    some = TargetResult("some", "cuda", gates, smoke_not_run=left)
    none = TargetResult("none", "cuda", {**gates, "smoke": "not-run"}, smoke_not_run=left)
    passed, lacking = (assemble("s", "2026-11-26", targets=[item]) for item in (some, none))
    assert "<strong>Passed</strong>" in run_html.render(passed)
    assert "<strong>Lock, build and scan passed; smoke did not run</strong>" in run_html.render(
        lacking
    )
    both = run_html.render(assemble("s", "2026-11-26", targets=[some, none]))
    assert (
        "<strong>Lock, build and scan passed; smoke did not run on 1 of 2 targets</strong>" in both
    )
    for report, id in (passed, "some"), (lacking, "none"):
        assert '<th scope="col">smoke</th>' in run_html.render(report)
        for text in run_html.render(report), run_markdown.render(report), table(report):
            assert said + id in text
        assert "not run for lack of a device: warmup (device)" in ci.render_junit(report)


def test_the_last_line_of_a_table_is_green_only_where_all_gates_held() -> None:
    gates: dict[Gate, GateState] = dict.fromkeys(GATES, "passed")
    for state, color in ("passed", "32"), ("undecided", "33"), ("failed", "31"):
        result = TargetResult("a", "cpu", {**gates, "smoke": state})  # type: ignore[dict-item]
        last = table(assemble("s", "2026-11-26", targets=[result]), color=True).splitlines()[-1]
        assert f"\x1b[{color}" in last or f";{color}m" in last, last


def table(report: Report, *, color: bool = False) -> str:
    return run_table.render(report, width=100, color=color)


def test_the_rung_static_needs_nothing_that_runs(
    run: Callable[[str], Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_sandbox(monkeypatch, tmp_path)
    assert run(BUILD)[0] == CAUSES[no_sandbox][0]
    assert run(f"preflight {TARGET} --level static")[0] == 0
