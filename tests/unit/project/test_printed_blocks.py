"""Blocks of documents that show commands run now, and print what they show.

A comment before a block names a folder of `documents`, whose README says what one may have, and
what prints the block where it has no line `$ ...` itself. A copy of the folder is where it runs:

    <!-- printed in cpu-report by: buildmatrix report report.json --format concise -->
    <!-- played in inferno, exit codes 0, 1 -->

A block that is played shows commands alone. They run in a shell, one after the other; their exit
codes are 0 unless the comment says others.

In output `...` stands for whatever is left out, and JSON blocks may leave out keys and entries.
Indents do not count. A comment that ends with `, where "2.32.3" "305.1 MB" vary` says which figures
may be others of the same shape.
"""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import click
import golden_inside
import golden_world
import pytest
from document_blocks import BLOCKS, ROOT, DocumentBlock, with_figures
from document_shell import commands, play
from golden_run import clean
from index import IndexServer

from buildmatrix import cli

FOLDERS = Path(__file__).parent / "documents"
NOW = 1795388706


class Clock(datetime):
    """The time of day that `verify` holds the catalogue against; the page's `--max-age` stays."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Clock:
        return cls.fromtimestamp(NOW, tz)


@dataclass(frozen=True)
class Printed:
    """Output that a block shows, and the command that prints it."""

    block: DocumentBlock
    folder: str
    command: str
    text: str
    varying: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return self.block.place


def outputs(block: DocumentBlock) -> Iterator[Printed]:
    """What a marked block shows; of a console, the output of each command."""
    match = block.marked("printed in")
    if match is None:
        return
    folder = match["folder"]
    if match["command"]:
        yield Printed(block, folder, match["command"], block.text, block.varying)
        return
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Printed(block, folder, command, output, block.varying)


PRINTED = [shown for block in BLOCKS for shown in outputs(block)]
PLAYED = [block for block in BLOCKS if block.marked("played in")]
FILES = [(block, match) for block in BLOCKS if (match := block.marked("file of"))]


@dataclass(frozen=True)
class World:
    """What all folders share: a place for them, the inputs of the golden tests, and their index."""

    place: Path
    golden: Path
    index: str

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take this machine out of the environment."""
        shell = clean(monkeypatch, self.place / "home", self.index)
        for name, value in {
            **{name: value for name, value in shell.items() if name.startswith("GIT_")},
            "BUILDMATRIX_CACHE": str(self.place / "cache"),
            "BUILDMATRIX_NO_VULNERABILITIES": "1",
            "SOURCE_DATE_EPOCH": str(NOW),
            "COLUMNS": "100",
            "GITHUB_REPOSITORY": "acme/inferno",
            "DOCUMENT_PYTHON": sys.executable,
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("buildmatrix.api.releases.datetime", Clock)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The inputs of the golden tests with their locks."""
    place = tmp_path_factory.mktemp("documents")
    golden, programs = place / "golden", place / "home/bin"
    golden_world.write(golden)
    programs.mkdir(parents=True)
    (programs / "git").symlink_to(shutil.which("git") or "git")
    (programs / "python3").symlink_to(sys.executable)
    with IndexServer(golden / "wheels", pages="json", metadata=True) as index:
        world = World(place, golden, index.url)
        with pytest.MonkeyPatch.context() as monkeypatch:
            world.enter(monkeypatch)
            played = play("buildmatrix -q lock", golden, place / "shell")
        assert played.codes == [0], played.err
        yield world


class Stage:
    """Where the blocks of one folder run."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch

    def play(self, script: str) -> tuple[str, str, list[int]]:
        played = play(script, self.folder, self.scratch)
        assert not played.failures, f"{played.out}\n{played.err}"
        return played.out, played.err, played.codes


@contextmanager
def stage(name: str, world: World) -> Iterator[Stage]:
    """A folder of `documents`, after what it does before, which is done once."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield _prepare(name, world, monkeypatch)


def _prepare(name: str, world: World, monkeypatch: pytest.MonkeyPatch) -> Stage:
    place = world.place / name
    made, kept = Stage(place / "here", place / "shell"), place / "kept"
    world.enter(monkeypatch)
    if kept.exists():
        # At the same place: names of images are made of it.
        shutil.rmtree(made.folder)
        shutil.copytree(kept, made.folder, symlinks=True)
        golden_inside.replace_the_outside(made.folder, monkeypatch)
        monkeypatch.chdir(made.folder)
        return made
    source = FOLDERS / name
    made.folder.mkdir(parents=True)
    if (source / "golden").exists():
        shutil.copytree(world.golden, made.folder, symlinks=True, dirs_exist_ok=True)
    shutil.copytree(source, made.folder, dirs_exist_ok=True)
    for block, match in FILES:
        if match["folder"] == name:
            (made.folder / match["path"]).parent.mkdir(parents=True, exist_ok=True)
            (made.folder / match["path"]).write_text(block.text)
    monkeypatch.chdir(made.folder)
    if (source / "before.py").exists():
        runpy.run_path("before.py")
    golden_inside.replace_the_outside(made.folder, monkeypatch)
    if (source / "before.sh").exists():
        out, err, codes = made.play((source / "before.sh").read_text())
        assert not any(codes), out + err
    shutil.copytree(made.folder, kept, symlinks=True)
    return made


def is_text_of(text: str, printed: str, varying: tuple[str, ...] = ()) -> bool:
    """Whether these lines are printed, one below the other."""
    lines = "\n".join(line.strip() for line in text.strip().splitlines())
    output = "\n".join(line.strip() for line in printed.splitlines())
    pattern = re.escape(lines).replace(r"\.\.\.", ".*?")
    assert all(figure in text for figure in varying), f"one of {varying} is not in the block"
    return re.search(with_figures(pattern, varying), output, re.DOTALL) is not None


def is_part_of(part: Any, whole: Any) -> bool:
    """Whether JSON holds a value, itself or somewhere within."""
    inner = whole.values() if isinstance(whole, dict) else whole if isinstance(whole, list) else ()
    return _is_shortened(part, whole) or any(is_part_of(part, item) for item in inner)


def _is_shortened(part: Any, whole: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _is_shortened(part[key], whole[key]) for key in part)
    if isinstance(part, list) and isinstance(whole, list):
        return all(any(_is_shortened(item, other) for other in whole) for item in part)
    if isinstance(part, str) and isinstance(whole, str):
        return re.fullmatch(re.escape(part).replace(r"\.\.\.", ".*"), whole) is not None
    return bool(part == whole)


def is_shown(shown: Printed, output: str) -> bool:
    if shown.block.language == "json":
        return is_part_of(json.loads(shown.text), json.loads(output))
    return is_text_of(shown.text, output, shown.varying)


def shown_by_python(block: DocumentBlock, stage: Stage) -> int:
    """Run a block of Python as a script; its exit code."""
    path = stage.scratch / "shown.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(block.text)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_every_block_shows_what_is_printed(world: World, subtests: pytest.Subtests) -> None:
    for shown in PRINTED:
        with subtests.test(f"{shown.place}: {shown.command}"), stage(shown.folder, world) as here:
            out, err, _ = here.play(shown.command)
            assert is_shown(shown, out), f"{shown.command} prints:\n{out}\n{err}"


def test_the_commands_of_every_block_run(world: World, subtests: pytest.Subtests) -> None:
    for block in PLAYED:
        match = block.marked("played in")
        assert match is not None
        with subtests.test(block.place), stage(match["folder"], world) as here:
            if block.language == "python":
                out, err, codes = "", "", [shown_by_python(block, here)]
            else:
                out, err, codes = here.play(commands(block.text))
            wanted = [int(code) for code in (match["codes"] or "").split(", ") if code]
            assert codes and codes == (wanted or [0] * len(codes)), f"{codes}\n{out}\n{err}"


def test_there_are_many_and_each_folder_has_some() -> None:
    assert len(PRINTED) >= 9
    folders = {path.name for path in FOLDERS.iterdir() if path.is_dir()}
    assert {shown.folder for shown in PRINTED} | {
        match["folder"] for block in PLAYED if (match := block.marked("played in"))
    } == folders


def test_what_is_stale_would_be_seen(world: World) -> None:
    with stage("cpu-report", world) as here:
        for kind, text in (
            ("", "error BM801 known-vulnerability jinja2 3.1.1"),
            ("json", '{"rule": "BM101", "severity": "warning"}'),
            ("json", '{"ruel": "BM101"}'),
            ("json", '{"chain": ["requirements.in:4"]}'),
        ):
            command = f"buildmatrix report report.json --format {kind or 'table'}"
            shown = Printed(DocumentBlock("", 0, kind, "", text), "cpu-report", command, text)
            assert not is_shown(shown, here.play(command)[0]), text


def test_a_figure_that_varies_keeps_its_shape() -> None:
    assert is_text_of("nccl 2.32.3 (305.1 MB)", "nccl 2.40.0 (12.7 MB)", ("2.32.3", "305.1 MB"))
    assert not is_text_of("nccl 2.32.3 (305.1 MB)", "nccl 2.32.3 (12 kB)", ("2.32.3", "305.1 MB"))
    assert not is_text_of("nccl 2.32.3", "nccl 2.32.4")


def test_the_contract_lists_every_command() -> None:
    text = (ROOT / "docs/contract.md").read_text(encoding="utf-8")
    section = text[text.index("## Commands") : text.index("## Exit codes")]
    listed = set(re.findall(r"^  ([a-z][a-z-]*)\b", section.split("```")[1], re.MULTILINE))
    assert listed == set(cli.group.list_commands(click.Context(cli.group)))
