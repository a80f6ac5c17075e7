"""What the command line does around the commands: output, exit codes, usage errors."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from buildmatrix import cli
from buildmatrix.api.building import describe_images, make_surroundings
from buildmatrix.base.data import replace
from buildmatrix.base.errors import ComponentError, UndecidedError, UsageError
from buildmatrix.cli import console
from buildmatrix.cli.displays import PlainLines
from buildmatrix.cli.output import check_formats, write_document
from buildmatrix.commands import build_checks
from buildmatrix.commands.options import BuildOptions
from buildmatrix.commands.workspace import Workspace
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.model import TargetResult
from buildmatrix.matrix.model import bare_spec, bare_target
from buildmatrix.reports.formats import RUN
from buildmatrix.reports.run import Report, assemble
from buildmatrix.sources.images import DockerImage
from buildmatrix.sources.model import Argument, ReadingOptions
from buildmatrix.sources.parse import parse


def buildmatrix(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "buildmatrix", *arguments],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def report() -> Report:
    one = TargetResult("cpu", "cpu", {"lock": "failed"}, error="it failed")
    return assemble("demo", "2026-11-20", targets=(one,))


def test_a_reader_that_goes_away_gives_exit_code_0(tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "buildmatrix", "rules"],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_within_a_command_says_interrupted(capsys, monkeypatch):
    rules = importlib.import_module("buildmatrix.cli.reference")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rules, "say", interrupted)
    code, _, errors = run(capsys, "rules")
    assert code == 130
    assert errors.strip() == "buildmatrix: interrupted"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_on_a_full_disk_is_one_sentence_and_exit_code_3(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "buildmatrix", "rules"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 3
    assert done.stderr == (
        "buildmatrix: standard output cannot be written: no space left on device\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_file_on_a_full_disk_is_undecided_and_named():
    with pytest.raises(UndecidedError, match="/dev/full cannot be written: no space left"):
        write_document(RUN, report(), (("json", None),), Path("/dev/full"))


def test_a_folder_is_no_file_for_a_report(tmp_path):
    with pytest.raises(UsageError, match="cannot be written: is a directory"):
        write_document(RUN, report(), (("json", None),), tmp_path)


def test_parents_are_made_below_the_current_folder_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_document(RUN, report(), (("json", None),), Path("new/report.json"))
    assert Path("new/report.json").is_file()
    with pytest.raises(UsageError, match="name a file in a folder that exists"):
        write_document(RUN, report(), (("json", None),), tmp_path / "other" / "report.json")
    assert not (tmp_path / "other").exists()


def test_an_output_that_no_format_would_go_to_is_a_usage_error():
    with pytest.raises(UsageError, match=r"-o a\.txt would not be written"):
        check_formats(["table=b.txt"], Path("a.txt"))
    assert check_formats(["json=b.json", "table"], Path("a.txt"))


def test_a_format_with_a_file_of_its_own_does_not_silence_the_table():
    assert check_formats(["json=b.json"], None) == (("json", Path("b.json")), ("table", None))
    assert check_formats(["table=b.txt"], None) == (("table", Path("b.txt")),)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_takes_the_global_options_behind_it(command, capsys):
    code, printed, _ = run(capsys, command, "--help")
    assert code == 0
    for flag in ("--file", "--quiet", "--verbose", "--no-progress"):
        assert flag in printed


def test_global_options_mean_the_same_on_both_sides_of_the_command(tmp_path, capsys):
    missing = str(tmp_path / "none.toml")
    before = run(capsys, "-f", missing, "targets")
    assert before[0] == 2
    assert missing in before[2]
    assert run(capsys, "targets", "-f", missing) == before
    for arguments in (("-q", "targets", "-v"), ("targets", "-q", "-v")):
        code, _, errors = run(capsys, *arguments)
        assert code == 2
        assert "--quiet and --verbose are mutually exclusive" in errors


def test_a_command_that_is_misspelt_is_suggested(capsys):
    code, _, errors = run(capsys, "buld")
    assert code == 2
    assert "there is no command 'buld'; did you mean `build`?" in errors


def test_a_report_is_read_from_standard_input(tmp_path):
    write_document(RUN, report(), (("json", tmp_path / "saved.json"),), None)
    command = [sys.executable, "-m", "buildmatrix", "report", "-", "--format", "markdown"]
    with (tmp_path / "saved.json").open() as saved:
        done = subprocess.run(command, stdin=saved, capture_output=True, text=True, cwd=tmp_path)
    assert "it failed" in done.stdout
    both = subprocess.run([*command, "-"], input="", capture_output=True, text=True, cwd=tmp_path)
    assert (both.returncode, "can be read only once" in both.stderr) == (2, True)


def test_a_specification_is_no_baseline_and_is_not_to_be_overwritten(tmp_path, capsys):
    (tmp_path / "buildmatrix.toml").write_text("schema = 1\n")
    baseline = str(tmp_path / "buildmatrix.toml")
    folder = str(tmp_path)
    code, _, errors = run(capsys, "scan", folder, "--backend", "cpu", "--baseline", baseline)
    assert code == 2
    assert "buildmatrix.toml is not a report of buildmatrix" in errors
    assert "json=" + baseline not in errors


def test_rules_are_listed_as_json(capsys):
    _, printed, _ = run(capsys, "rules", "--format", "json")
    rules = json.loads(printed)
    assert set(rules[0]) == {"code", "name", "severity", "summary"}
    code, printed, _ = run(capsys, "rules", rules[0]["name"], "--format", "json")
    (rule,) = json.loads(printed)
    assert (code, rule["code"]) == (0, rules[0]["code"])
    assert rules[0]["code"] in rule["page"]


def test_a_file_gets_no_colours_and_a_pipe_keeps_those_that_are_forced(tmp_path):
    write_document(RUN, report(), (("json", tmp_path / "saved.json"),), None)
    saved = str(tmp_path / "saved.json")
    forced = buildmatrix("report", saved, cwd=tmp_path, FORCE_COLOR="1", NO_COLOR="")
    assert "\x1b[" in forced.stdout
    assert "\x1b[" not in buildmatrix("report", saved, cwd=tmp_path, FORCE_COLOR="").stdout
    buildmatrix("report", saved, "-o", "out.txt", cwd=tmp_path, FORCE_COLOR="1", NO_COLOR="")
    assert "\x1b[" not in (tmp_path / "out.txt").read_text()


def test_smoke_runs_every_target_that_matches_and_the_worst_exit_code_counts(capsys, monkeypatch):
    command = importlib.import_module("buildmatrix.cli.build")
    targets = [
        SimpleNamespace(id=id, backend="cpu", references=(f"demo:{id}",), smoke=())
        for id in ("cpu-a", "cpu-b", "cpu-c")
    ]
    states = {"cpu-a": "passed", "cpu-b": "failed", "cpu-c": "passed"}
    docker = SimpleNamespace(image=lambda _: SimpleNamespace(digest="sha256:00"))
    spec = SimpleNamespace(catalogue_files=(), root=Path("/nonexistent"))
    monkeypatch.setattr(command, "load_targets", lambda *_: (spec, targets))
    monkeypatch.setattr(Workspace, "image_engine", lambda *_: docker)
    monkeypatch.setattr(
        build_checks, "run", lambda target, *_: build_checks.SmokeOutcome(states[target.id])
    )
    code, printed, _ = run(capsys, "smoke", "cpu*", "-q")
    assert code == 1
    assert printed.splitlines() == ["cpu-a: passed", "cpu-b: failed", "cpu-c: passed"]


@pytest.mark.parametrize("text", ["pypi:numpy==2.1", "lock:a.toml", "requirements:a", "report:b"])
def test_a_source_that_is_no_tree_names_the_command_that_reads_it(text):
    with pytest.raises(
        UsageError, match=r"cannot be scanned; use .*, or run `buildmatrix (audit|report)`"
    ):
        parse(Argument(text, "scan"))


def test_an_empty_source_is_a_usage_error():
    with pytest.raises(UsageError, match="SOURCE is empty"):
        parse(Argument("", "scan"))


def test_a_folder_that_holds_nothing_to_judge_is_undecided(capsys, tmp_path):
    code, _, errors = run(capsys, "scan", str(tmp_path), "--backend", "cpu", "--no-cache")
    assert code == 3
    assert "nothing to judge" in errors
    assert errors.count("\n") == 1


def test_a_name_that_no_image_can_have_is_a_usage_error():
    def image(_: str) -> None:
        raise UndecidedError("invalid reference format: repository name must be lowercase")

    with pytest.raises(UsageError, match="'Demo' is not an image name"):
        DockerImage("Demo").facts(ReadingOptions(lambda: SimpleNamespace(image=image)))


@pytest.mark.parametrize("mirror", ["registry.example.com/hub", "registry.example.com /hub/"])
def test_a_mirror_that_is_no_prefix_is_a_usage_error_that_says_what_to_write(mirror):
    with pytest.raises(UsageError, match=r": --mirror registry\.example\.com/hub/$"):
        make_surroundings(BuildOptions(mirror=mirror))


def test_lock_names_the_target_of_an_error_once(tmp_path, capsys, monkeypatch):
    status = importlib.import_module("buildmatrix.locks.status")
    resolve = importlib.import_module("buildmatrix.locks.resolve")
    target = bare_target("cpu", "cpu", lock="pylock.cpu.toml")
    spec = replace(bare_spec(target), path=tmp_path / "buildmatrix.toml")
    monkeypatch.setattr(Workspace, "load", lambda *_: spec)
    monkeypatch.setattr(status, "staleness", lambda *_: "missing")
    monkeypatch.setattr(status, "leftovers", lambda *_: ())
    error = UndecidedError("cpu: no versions fit")
    monkeypatch.setattr(resolve, "lock_targets", lambda *_, **__: {"cpu": error})
    assert run(capsys, "lock") == (3, "", "cpu: no versions fit\n")


def test_quiet_is_taken_after_the_command_too_and_excludes_verbose(capsys, monkeypatch):
    status = importlib.import_module("buildmatrix.locks.status")
    monkeypatch.setattr(status, "leftovers", lambda *_: ())
    monkeypatch.setattr(Workspace, "load", lambda *_: bare_spec())
    assert run(capsys, "lock", "-q", "--no-progress")[0] == 0
    code, _, errors = run(capsys, "-q", "lock", "-v")
    assert code == 2
    assert "mutually exclusive" in errors


def test_a_rule_is_found_by_its_name(capsys):
    assert run(capsys, "rules", "foreign-device-code") == run(capsys, "rules", "BM401")


def test_a_log_names_each_step_once_though_several_take_turns(capsys):
    lines = PlainLines(verbose=False, command="build")
    for text in ("RUN a", "RUN b", "RUN a", "RUN b"):
        lines.step("cpu", text)
    lines.step("rocm", "RUN a")
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(maxsplit=1)[1] for line in printed] == [
        "[cpu] RUN a",
        "[cpu] RUN b",
        "[rocm] RUN a",
    ]


# What a screen says last, and how wide it is

SPEC = """\
[project]
name = "inferno"
version = "1.4.0"
image = "registry.example.com/a/very/long/name/{project}"
[defaults]
python = "3.12"
requirements = ["base.in"]
[backend.cpu]
runtime = "any"
base = "python:3.12-slim"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    (tmp_path / "base.in").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


def test_targets_fold_on_a_narrow_terminal_and_never_in_a_pipe(project, capsys, monkeypatch):
    image = "registry.example.com/a/very/long/name/inferno:1.4.0-cpu-py312-default"
    monkeypatch.setenv("COLUMNS", "80")
    code, printed, _ = run(capsys, "targets")
    assert (code, printed.splitlines()[1].split()) == (
        0,
        ["cpu-py312-default", "python:3.12-slim", image],
    )
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(capsys, "targets")[1].splitlines() == [
        "cpu-py312-default",
        "  base   python:3.12-slim",
        f"  image  {image}",
    ]


def test_a_table_in_a_pipe_has_the_columns_of_the_environment(tmp_path, capsys, monkeypatch):
    one = TargetResult("cpu", "cpu", {"lock": "failed"}, error="word " * 60)
    write_document(
        RUN, assemble("demo", "2026-11-20", targets=(one,)), (("json", tmp_path / "r.json"),), None
    )
    for given, wide in (("", 100), ("60", 60)):
        monkeypatch.setenv("COLUMNS", given)
        lines = run(capsys, "report", str(tmp_path / "r.json"))[1].splitlines()
        assert wide - 6 < max(map(len, lines)) <= wide


def test_a_terminal_breaks_no_word_and_no_command(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    sentence = "a lock that is not current; run `buildmatrix lock --select cpu` in the folder"
    console.complain(sentence)
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert any("`buildmatrix lock --select cpu`" in line for line in lines)
    assert " ".join(line.strip() for line in lines) == sentence


@pytest.mark.parametrize(
    ("engine", "changes", "wanted"),
    [
        ("docker", {}, ["demo:1 in Docker", "run: docker run --rm demo:1", "--push"]),
        ("gone", {}, ["demo:1 in the cache of the builder", "--push"]),
        (
            "oci",
            {},
            [
                "demo:1 in .buildmatrix/images (an OCI layout)",
                "run: the same command with --save image.tar, then docker load -i FILE",
                "--push",
            ],
        ),
        ("docker", {"push": "passed"}, ["demo:1 published", "run: docker run --rm demo:1"]),
        ("docker", {"error": "it failed"}, []),
        ("docker", {"gates": {"build": "passed", "smoke": "undecided"}}, []),
        ("docker", {"gates": {}}, []),
    ],
)
def test_a_build_ends_with_where_its_image_is(engine, changes, wanted):
    one = replace(TargetResult("cpu", "cpu", {"build": "passed"}, image="demo:1"), **changes)
    built = SimpleNamespace(name=engine, image=lambda _: None if engine == "gone" else object())
    report = assemble("demo", "2026-11-20", targets=(one,))
    lines = describe_images(report, built, ".buildmatrix/images", None, None)
    ends = [line.removeprefix("publish: the same command with ") for line in lines]
    assert ends == wanted


def test_what_is_staged_or_saved_says_the_next_command():
    one = TargetResult("cpu", "cpu", {"build": "passed"}, image="demo:1")
    report = assemble("demo", "2026-11-20", targets=(one, replace(one, id="cuda")))
    engine = SimpleNamespace(name="oci")
    assert describe_images(report, engine, "x", None, Path("r.json")) == [
        "2 images staged, without tags",
        "publish: buildmatrix promote r.json",
    ]
    assert describe_images(report, engine, "x", "{id}.tar", None)[1] == (
        "run: docker load -i cpu.tar, then docker run --rm demo:1"
    )


# Spellings of other tools, and former ones


def test_files_and_names_are_taken_as_pip_and_uv_take_them(project, capsys, monkeypatch):
    asked = []

    def stop(options, *_, upgrade=(), **__):
        asked.append(upgrade or options.sources)
        raise UsageError("asked")

    monkeypatch.setattr("buildmatrix.api.judging.audit", stop)
    monkeypatch.setattr("buildmatrix.locks.resolve.lock_targets", stop)
    assert run(capsys, "audit", "-r", "base.in", "uv.lock", "--backend", "cpu")[0] == 2
    assert run(capsys, "lock", "-P", "numpy", "--upgrade=h11", "--no-progress")[0] == 2
    assert asked == [("uv.lock", "requirements:base.in"), ("h11", "numpy")]


def test_a_check_that_found_nothing_says_so(project, capsys, monkeypatch):
    monkeypatch.setattr("buildmatrix.locks.status.staleness", lambda *_: "")
    assert run(capsys, "lock", "--check") == (0, "", "1 lock checked, all current\n")
    assert run(capsys, "lock", "--check", "-q") == (0, "", "")
    monkeypatch.setattr("buildmatrix.locks.status.staleness", lambda *_: "its inputs changed")
    assert run(capsys, "lock", "--check") == (
        1,
        "cpu-py312-default: its inputs changed\n",
        "1 of 1 lock not current; run `buildmatrix lock`\n",
    )


@pytest.mark.parametrize("flag", ["--level", "--preflight"])
def test_a_former_spelling_goes_on_working_and_no_help_has_it(capsys, flag):
    build = cli.load_command("build")
    with build.make_context("build", [flag, "compute"]) as context:
        assert context.params["preflight"] == "compute"
    assert "--preflight" not in run(capsys, "build", "--help")[1]


def test_a_missing_extra_has_the_code_of_a_missing_component(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    inspect = importlib.import_module("buildmatrix.cli.inspect")
    with pytest.raises(ComponentError, match=r"pip install 'buildmatrix\[explore\]'"):
        inspect._check_terminal()


# Images and engines


def test_without_docker_its_images_are_said_to_need_it(tmp_path):
    from buildmatrix.engines import docker_containers as containers

    def image(_: str) -> None:
        with containers.Daemon(f"unix://{tmp_path}/docker.sock", {"PATH": str(tmp_path)}).client():
            raise AssertionError("there is a daemon")

    with pytest.raises(ComponentError, match=r"Docker is not installed: .* or name the image as"):
        DockerImage("demo").facts(ReadingOptions(lambda: SimpleNamespace(image=image)))


@pytest.mark.parametrize(("engine", "label"), [("docker", "docker:demo:1"), ("oci", "demo:1")])
def test_only_an_image_of_docker_is_called_one(engine, label):
    own = SimpleNamespace(
        name=engine, image=lambda _: SimpleNamespace(digest="sha256:1", labels={})
    )
    cache = SimpleNamespace(inventory=lambda _key, _read: Inventory())
    options = ReadingOptions(lambda: own, cache=lambda: cache)
    assert DockerImage("demo:1").read(options).label == label
