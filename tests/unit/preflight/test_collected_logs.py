"""The very command of a manifest is run here, and its log is read back; then the log is broken."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from probing import with_clock

from buildmatrix.base.errors import UsageError
from buildmatrix.matrix.model import NodeClass, Position, bare_target
from buildmatrix.preflight import cluster as collecting
from buildmatrix.preflight import protocol
from buildmatrix.preflight.baseline import accept
from buildmatrix.preflight.cluster import collect, find_subject
from buildmatrix.preflight.manifests import ManifestRun, format_manifest, plan_steps
from buildmatrix.preflight.protocol import ProbeCall, read_checks
from buildmatrix.preflight.run import RungInputs, exit_code
from buildmatrix.reports.preflight import Check, Preflight, RungOutcome
from buildmatrix.reports.preflight_formats import render_table

IMAGE = f"registry.example.com/inferno@sha256:{'7' * 64}"
NODE = NodeClass("h100", "cuda", "", (), {}, (), Position(Path("buildmatrix.toml"), 1, 1))
#: Seconds until a test that waits for ever fails.
PATIENCE = 300
#: Announces three things, reports two of them, and does as it is asked when these were read.
PROBE = """
import fcntl, json, os, pathlib, subprocess, sys, termios, time
options = json.loads(sys.argv[1])
def report(subject, state, **values):
    check = dict(subject=subject, state=state, values=values)
    print("noise" + options["mark"] + json.dumps(check), flush=True)
report("all", "passed", names=["a", "b", "c"])
report("a", os.environ.get("STATE_OF_A", "passed"))
print("x" * 300000)
report("b", "passed", home=os.environ["HOME"])
subprocess.Popen(["sleep", "60"])
what = os.environ.get("WHAT")
while what and any(fcntl.ioctl(1, termios.FIONREAD, bytes(4))): time.sleep(0.01)
if what == "kill": os.kill(os.getppid(), 15)
if what: pathlib.Path(os.environ["END"]).touch(); time.sleep(1000)
report("c", "passed")
sys.exit(7)
"""


def device(climb: RungInputs) -> tuple[tuple[Check, ...], str]:
    """A rung that runs one probe and one plain command."""
    mark = f"@@{os.urandom(4).hex()}@@"
    options = json.dumps({"depth": 3, "mark": mark}, separators=(",", ":"))
    probe = ProbeCall((sys.executable, "-c", PROBE, options), mark)
    ended = climb.run(probe.command, PATIENCE)
    seen = read_checks(ended.output, mark)[1:]
    plain = climb.run((sys.executable, "-c", "print('plain words')"), PATIENCE)
    said = Check(
        "plain",
        "passed" if "plain words" in plain.output else "failed",
        values={"exit_code": ended.exit_code, "timed_out": ended.timed_out},
    )
    return (*seen, said), ""


@pytest.fixture(autouse=True)
def _runners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "RUNNERS", {"device": device})


@pytest.fixture
def pod(tmp_path: Path) -> Callable[..., str]:
    """Runs what a manifest runs, in a process of this machine; gives its log."""

    def run(node: str = "gpu-00", image: str = IMAGE, **environment: str) -> str:
        planned = plan_steps("device", lambda run: device(cast(Any, Fake(run))))
        target = bare_target("cuda12.8-py311-server", "cuda")
        made = ManifestRun(target, image, NODE, "device", planned, {})
        config, job = yaml.safe_load_all(format_manifest(made))
        folder = tmp_path / f"pod-{node}"
        folder.mkdir(exist_ok=True)
        for name, content in config["data"].items():
            (folder / name).write_text(content)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        program, *arguments = container["command"]
        assert program == "python"
        words = [word.replace("/buildmatrix", str(folder)) for word in arguments]
        end = folder / "end"
        source = f"import runpy, sys; sys.argv[:] = {words!r}; runpy.run_path({words[0]!r})"
        ended = subprocess.run(
            [sys.executable, "-c", with_clock(source, end)],
            env={
                "BUILDMATRIX_NODE": node,
                "BUILDMATRIX_POD": f"pod-{node}",
                "END": str(end),
                **environment,
            },
            stdout=subprocess.PIPE,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        return ended.stdout

    return run


class Fake:
    def __init__(self, run: object) -> None:
        self.run = run


def read(
    folder: Path, *texts: str, digest: str | None = None, baseline: Path | None = None
) -> Preflight:
    for number, content in enumerate(texts):
        (folder / f"{number}.log").write_text(content)
    found = protocol.read_logs([str(folder / f"{number}.log") for number in range(len(texts))])
    of = partial(find_subject, None, cast(Any, None))
    return collect(found, of, digest, date(2026, 11, 23), baseline=baseline)


def device_rungs(preflight: Preflight) -> list[RungOutcome]:
    assert render_table(preflight, width=100, color=False)
    (target,) = preflight.targets
    assert [rung.rung for rung in target.rungs].count("import") >= 1
    return [rung for rung in target.rungs if rung.rung == "device"]


def states(outcome: RungOutcome) -> dict[str, str]:
    return {check.subject: check.state for check in outcome.checks}


def test_what_a_pod_found_is_what_the_rung_says_of_it(
    pod: Callable[..., str], tmp_path: Path
) -> None:
    log = pod()
    assert len(log) < 40_000  # Of what is no check, the end is kept.
    result = read(tmp_path, log)
    (outcome,) = device_rungs(result)
    assert (outcome.state, outcome.where) == ("passed", "gpu-00")
    assert states(outcome) == {"a": "passed", "b": "passed", "c": "passed", "plain": "passed"}
    plain = outcome.checks[-1]
    assert plain.values == {"exit_code": 7, "timed_out": False}
    assert result.targets[0].digest == IMAGE.partition("@")[2]
    assert (result.targets[0].node_class, exit_code(result)) == ("h100", 0)
    assert exit_code(result, strict=True) == 3  # The manifest had no command of `import`.


def test_what_pods_measured_is_held_against_a_baseline_of_their_node_class(
    pod: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(gbps: float) -> Callable[[RungInputs], tuple[tuple[Check, ...], str]]:
        def device_with_rate(climb: RungInputs) -> tuple[tuple[Check, ...], str]:
            found, why = device(climb)
            return (*found, Check("copy", "passed", values={"gbps": gbps})), why

        return device_with_rate

    log, base = pod(), tmp_path / "base.json"
    monkeypatch.setattr(collecting, "RUNNERS", {"device": measured(100.0)})
    accept(read(tmp_path, log), base)
    monkeypatch.setattr(collecting, "RUNNERS", {"device": measured(40.0)})
    (outcome,) = device_rungs(read(tmp_path, log, baseline=base))
    last = outcome.checks[-1]
    # On the rung `device` nothing fails by being slow.
    assert (last.subject, last.state) == ("copy against the baseline", "passed")
    assert last.values["ratios"] == {"gbps": 2.5}
    text = base.read_text().replace('"h100"', '"mi300"')
    base.write_text(text)
    with pytest.raises(UsageError, match="was taken on mi300, and this is h100"):
        read(tmp_path, log, baseline=base)


def test_a_rung_of_which_something_is_left_has_not_passed(
    pod: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        collecting, "RUNNERS", {"device": lambda climb: (device(climb)[0], "the rest is open")}
    )
    (outcome,) = device_rungs(read(tmp_path, pod()))
    assert (outcome.state, outcome.why) == ("not-run", "the rest is open")


def test_each_command_has_a_home_of_its_own_that_is_gone(
    pod: Callable[..., str], tmp_path: Path
) -> None:
    (outcome,) = device_rungs(read(tmp_path, pod()))
    home = outcome.checks[1].values["home"]
    assert isinstance(home, str) and home != os.environ["HOME"] and not Path(home).exists()


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-11-23T01:02:03.123456789Z ",
        "[pod/preflight-x-abcde/preflight] 2026-11-23T01:02:03.1Z ",
        "\x1b[32mpreflight-x › preflight\x1b[0m ",
    ],
)
def test_prefixes_and_other_lines_do_no_harm(
    pod: Callable[..., str], tmp_path: Path, prefix: str
) -> None:
    lines = "".join(f"{prefix}{line}\nfailed to get logs\n" for line in pod().splitlines())
    (outcome,) = device_rungs(read(tmp_path, lines))
    assert outcome.state == "passed"


def test_logs_of_pods_in_one_stream_are_told_apart(pod: Callable[..., str], tmp_path: Path) -> None:
    first, second = pod("gpu-00").splitlines(), pod("gpu-01").splitlines()
    pairs = [line for both in zip(first, second, strict=True) for line in both]
    rungs = device_rungs(read(tmp_path, "\n".join(pairs)))
    assert [(rung.where, rung.state) for rung in rungs] == [
        ("gpu-00", "passed"),
        ("gpu-01", "passed"),
    ]


def test_the_same_log_twice_is_one_pod(pod: Callable[..., str], tmp_path: Path) -> None:
    log = pod()
    (outcome,) = device_rungs(read(tmp_path, log, log))
    assert (outcome.state, len(outcome.checks)) == ("passed", 4)


def test_nodes_that_contradict_each_other_are_named(
    pod: Callable[..., str], tmp_path: Path
) -> None:
    result = read(tmp_path, pod("gpu-00"), pod("gpu-01", STATE_OF_A="failed"))
    good, bad = device_rungs(result)
    assert (good.state, bad.state, bad.where) == ("passed", "failed", "gpu-01")
    assert bad.why == "it passed on gpu-00, of the same node class"
    assert exit_code(result) == 1


@pytest.mark.parametrize("share", [0.35, 0.6, 0.9])
def test_a_log_that_is_cut_leaves_open_what_was_announced(
    pod: Callable[..., str], tmp_path: Path, share: float
) -> None:
    log = pod()
    result = read(tmp_path, log[: int(len(log) * share)])
    (outcome,) = device_rungs(result)
    assert (outcome.state, exit_code(result)) == ("undecided", 3)
    assert "has no end" in outcome.why
    named = states(outcome)
    assert named["pod pod-gpu-00"] == "undecided"


def test_a_pod_that_is_evicted_says_so(pod: Callable[..., str], tmp_path: Path) -> None:
    (outcome,) = device_rungs(read(tmp_path, pod(WHAT="kill")))
    assert outcome.state == "undecided" and "SIGTERM" in outcome.why
    named = states(outcome)
    assert (named["a"], named["b"], named["c"]) == ("passed", "passed", "undecided")


def test_a_command_that_hangs_is_ended_and_the_next_one_runs(
    pod: Callable[..., str], tmp_path: Path
) -> None:
    (outcome,) = device_rungs(read(tmp_path, pod(WHAT="hang")))
    assert states(outcome) == {"a": "passed", "b": "passed", "plain": "passed"}
    code = 128 + signal.SIGKILL
    assert outcome.checks[-1].values == {"exit_code": code, "timed_out": True}


def test_lines_that_are_missing_are_counted(pod: Callable[..., str], tmp_path: Path) -> None:
    lines = [line for line in pod().splitlines() if '\\"b\\"' not in line or "names" in line]
    (outcome,) = device_rungs(read(tmp_path, "\n".join(lines)))
    assert outcome.state == "undecided"
    assert outcome.checks[-1].message == "1 of its lines are missing"


def test_a_log_without_its_beginning_is_undecided(pod: Callable[..., str], tmp_path: Path) -> None:
    result = read(tmp_path, "\n".join(pod().splitlines()[1:]))
    (target,) = result.targets
    (outcome,) = target.rungs
    assert (outcome.state, exit_code(result)) == ("undecided", 3)


def test_results_of_another_image_are_refused(pod: Callable[..., str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="but sha256:1"):
        read(tmp_path, pod(), digest=f"sha256:{'1' * 64}")
    other = pod("gpu-01", image=IMAGE.replace("7" * 64, "8" * 64))
    with pytest.raises(UsageError, match="different images are not one report"):
        read(tmp_path, pod(), other)


def test_another_schema_is_refused(pod: Callable[..., str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="reads 'buildmatrix/preflight-log/1'"):
        read(tmp_path, pod().replace("preflight-log/1", "preflight-log/9"))


def test_a_command_that_was_never_asked_for_is_no_answer(
    pod: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = pod()

    def another(climb: RungInputs) -> tuple[tuple[Check, ...], str]:
        climb.run(("other", "words"), 1)
        return (), ""

    monkeypatch.setattr(collecting, "RUNNERS", {"device": another})
    (outcome,) = device_rungs(read(tmp_path, log))
    assert outcome.state == "undecided" and "write that again" in outcome.why


BEGIN = {
    "buildmatrix": "begin", "run": "r", "line": 0, "schema": "buildmatrix/preflight-log/1",
    "target": "t", "backend": "cuda", "image": IMAGE, "digest": IMAGE.partition("@")[2],
    "node_class": "h100", "level": "device", "node": "n", "pod": "p",
    "steps": [{"rung": "device", "key": "k"}],
}  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        [{**BEGIN, "steps": [{"rung": "x" * 1000, "key": "\x1b"}] * 100}],
        [{**BEGIN, "target": "\x1b[2J::error::", "backend": "nobody", "image": "../../etc/passwd"}],
        [{**BEGIN, "level": "heaven", "node": "a\nb"}],
        [BEGIN, {"buildmatrix": "exit", "run": "r", "line": 10**9, "step": -5, "code": 0}],
        [BEGIN, {"buildmatrix": "check", "run": "r", "line": 1, "step": 10**6, "text": "{" * 9000}],
        [BEGIN, "[" * 200_000, '{"buildmatrix": "exit", "run": "r", "line": 1' + "9" * 5000 + "}"],
    ],
    ids=range(6),
)
def test_hostile_logs_are_read_within_bounds(lines: Sequence[object], tmp_path: Path) -> None:
    content = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    result = read(tmp_path, "\n".join(content))
    assert exit_code(result) in (0, 3)
    assert not any(rung.state == "passed" for target in result.targets for rung in target.rungs)
    # As it is: the table is guarded where it is written, and holds no control characters before.
    assert "\x1b" not in render_table(result, width=100, color=False)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("Error from server (NotFound)\n")
    with pytest.raises(UsageError, match="not the output of a preflight pod"):
        protocol.read_logs([str(tmp_path)])
    with pytest.raises(UsageError, match="not a readable file"):
        protocol.read_logs([str(tmp_path / "gone")])


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LARGEST", 1000)
    (tmp_path / "x").write_text("x" * 2000)
    with pytest.raises(UsageError, match="give it in parts"):
        protocol.read_logs([str(tmp_path)])
    monkeypatch.setattr(protocol, "LARGEST", 1 << 20)
    monkeypatch.setattr(protocol, "MOST_RUNS", 3)
    many = [json.dumps({**BEGIN, "run": str(number)}) for number in range(5)]
    (tmp_path / "x").write_text("\n".join(many))
    with pytest.raises(UsageError, match="more than 3 pods"):
        protocol.read_logs([str(tmp_path)])


def test_pods_of_several_nodes_begin_when_all_are_there(tmp_path: Path) -> None:
    code = "print('@@mark@@' + 'x')"
    step = {
        "rung": "collective",
        "key": "k",
        "seconds": PATIENCE,
        "command": [sys.executable, "-c", code],
    }
    plan = {"schema": protocol.LOG_SCHEMA, "about": ["nodes"], "nodes": 2, "mark": "@@mark@@"}
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "steps": [step]}))
    probes = Path(collecting.__file__).with_name("probes")
    with socket.socket() as held:
        # Nobody else is given a port that is bound; who asks for this one gets it all the same.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        pods = [
            subprocess.Popen(
                [sys.executable, probes / "pod.py", tmp_path],
                env={
                    "BUILDMATRIX_FIRST": "127.0.0.1",
                    "BUILDMATRIX_RANK": str(rank),
                    "BUILDMATRIX_PORT": str(held.getsockname()[1]),
                },
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in (1, 0)
        ]
        # The one that began first waits; only its beginning is printed until the other is there.
        for process in pods:
            output, _ = process.communicate(timeout=PATIENCE)
            kinds = [json.loads(line)["buildmatrix"] for line in output.splitlines()]
            assert kinds == ["begin", "check", "exit", "end"]
