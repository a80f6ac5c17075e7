"""Blocks of documents that show output show what is printed now.

A comment before a block says in which folder of `documents` it is, and what prints it where the
block has no line `$ buildmatrix ...` itself:

    <!-- printed in cpu-report by: buildmatrix report report.json --format concise -->

`...` stands for whatever is left out, and JSON blocks may leave out keys and entries. Indents do
not count.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from buildmatrix import cli

ROOT = Path(__file__).parents[3]
FOLDERS = Path(__file__).parent / "documents"
_MARKED = re.compile(
    r"^<!-- printed in (?P<folder>[\w-]+)(?: by: (?P<command>.+?))? -->\n```(?P<kind>\w*)\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    place: str
    folder: str
    command: str
    kind: str
    text: str


def blocks(text: str, name: str) -> Iterator[Block]:
    """The marked blocks of a document; one for each command of a console."""
    for match in _MARKED.finditer(text):
        place = f"{name}:{text[: match.start()].count(chr(10)) + 1}"
        if match["command"]:
            yield Block(place, match["folder"], match["command"], match["kind"], match["text"])
            continue
        for part in re.split(r"^\$ ", match["text"], flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield Block(place, match["folder"], command, "", output)


BLOCKS = [
    block
    for path in sorted(ROOT.glob("docs/**/*.md"))
    for block in blocks(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
]


def printed(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795388706")
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit):
        cli.main()
    return capfd.readouterr().out


def is_text_of(text: str, printed: str) -> bool:
    """Whether these lines are printed, one below the other."""
    lines = "\n".join(line.strip() for line in text.strip().splitlines())
    output = "\n".join(line.strip() for line in printed.splitlines())
    return re.search(re.escape(lines).replace(r"\.\.\.", ".*?"), output, re.DOTALL) is not None


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


def is_shown(block: Block, output: str) -> bool:
    if block.kind == "json":
        return is_part_of(json.loads(block.text), json.loads(output))
    return is_text_of(block.text, output)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.place}-{block.command}")
def test_a_block_shows_what_is_printed(
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = shutil.copytree(FOLDERS / block.folder, tmp_path / "here")
    output = printed(block.command, folder, monkeypatch, capfd)
    assert is_shown(block, output), f"{block.command} prints:\n{output}"


def test_there_are_many_and_each_folder_has_some() -> None:
    assert len(BLOCKS) >= 9
    folders = {path.name for path in FOLDERS.iterdir() if path.is_dir()}
    assert {block.folder for block in BLOCKS} == folders


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("", "error BM801 known-vulnerability jinja2 3.1.1"),
        ("json", '{"rule": "BM101", "severity": "warning"}'),
        ("json", '{"ruel": "BM101"}'),
        ("json", '{"chain": ["requirements.in:4"]}'),
    ],
)
def test_what_is_stale_would_be_seen(
    kind: str, text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = f"buildmatrix report report.json --format {kind or 'table'}"
    block = Block("", "cpu-report", command, kind, text)
    assert not is_shown(block, printed(command, FOLDERS / "cpu-report", monkeypatch, capfd))


def test_the_contract_lists_every_command() -> None:
    text = (ROOT / "docs/contract.md").read_text(encoding="utf-8")
    section = text[text.index("## Commands") : text.index("## Exit codes")]
    listed = set(re.findall(r"^  ([a-z][a-z-]*)\b", section.split("```")[1], re.MULTILINE))
    assert listed == set(cli.group.list_commands(click.Context(cli.group)))
