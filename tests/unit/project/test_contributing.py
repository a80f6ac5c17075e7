"""CONTRIBUTING.md, followed to the letter in a copy of the tree."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: A fenced block with its language and, in the line above, the file that it is or that it changes.
_BLOCK = re.compile(
    r"(?:^(?P<lead>(?:In |At the end of )?`(?P<path>[^`\n]+)`[^`\n]*:)\n\n)?"
    r"^(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


def sections(text: str) -> dict[str, str]:
    """The text below each heading of the second level; those within a block are the block's."""
    fences = [block.span() for block in _BLOCK.finditer(text)]
    headings = [
        heading
        for heading in re.finditer(r"^## (.+)\n", text, re.MULTILINE)
        if not any(start <= heading.start() < end for start, end in fences)
    ]
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    return {
        heading[1]: text[heading.end() : end] for heading, end in zip(headings, ends, strict=True)
    }


SECTIONS = sections((ROOT / "CONTRIBUTING.md").read_text())
#: Sections with blocks to follow.
FOLLOWED = (
    "Run the checks, and one test",
    "Add a vendor",
    "Add a rule",
    "Add a format",
    "Add a source",
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, whose bytecode the commands of all sections share."""
    tree = tmp_path_factory.mktemp("contributing")
    skipped = shutil.ignore_patterns("__pycache__", "project", "golden")
    for folder in ("src", "docs", "templates", "tests/unit", "tests/servers"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


@pytest.fixture
def copy(tree: Path, name: str) -> Iterator[Path]:
    """The copy, without the files and edits of other sections."""
    yield tree
    for path in {block["path"] for block in _BLOCK.finditer(SECTIONS[name]) if block["path"]}:
        (tree / path).unlink(missing_ok=True)
        if (ROOT / path).exists():
            shutil.copy2(ROOT / path, tree / path)


def run(root: Path, line: str) -> str:
    """The output of a command; the tools are those of the running Python, the code the copy's."""
    program, *arguments = shlex.split(line)
    options = ["-p", "no:cacheprovider"] if program == "pytest" else []
    process = subprocess.run(
        [sys.executable, "-m", program, *options, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.returncode == 0, f"$ {line}\n{process.stdout}"
    return process.stdout


def changed(before: str, difference: str) -> str:
    """A text after a difference whose lines stand in it exactly once."""
    lines = difference.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    assert before.count(old) == 1, f"the tree does not have, or not just once:\n{old}"
    return before.replace(old, new)


def follow(root: Path, section: str) -> None:
    for block in _BLOCK.finditer(section):
        path, text = block["path"], block["text"]
        if block["language"] == "console":
            for command, *shown in (part.splitlines() for part in text.split("$ ")[1:]):
                output = run(root, command)
                assert not (missing := [line for line in shown if line not in output]), (
                    f"$ {command}\n{output}\nhas no {missing}"
                )
        elif block["language"] == "diff":
            (root / path).write_text(changed((root / path).read_text(), text))
        elif path is not None and block["lead"].startswith("At the end"):
            with (root / path).open("a") as file:
                file.write(f"\n\n{text}")
        elif path is not None:
            assert not (root / path).exists(), f"{path} is there already"
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(text)


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_section_can_be_followed(copy: Path, name: str) -> None:
    follow(copy, SECTIONS[name])
    written = [block["path"] for block in _BLOCK.finditer(SECTIONS[name]) if block["path"]]
    code = [path for path in written if path.endswith(".py")]
    if code:
        run(copy, f"ruff check --no-cache {shlex.join(code)}")
        run(copy, f"ruff format --no-cache --check {shlex.join(code)}")


def test_a_rule_takes_a_function_a_page_a_line_and_a_test() -> None:
    blocks = [block for block in _BLOCK.finditer(SECTIONS["Add a rule"]) if block["path"]]
    folders = {"diff": "src/buildmatrix/judge/registry.py"}
    assert sorted(folders.get(block["language"], block["path"]) for block in blocks) == [
        "docs/rules/BM112.md",
        "src/buildmatrix/judge/distributions.py",
        "src/buildmatrix/judge/registry.py",
        "tests/unit/judge/test_nightly_build.py",
    ]
    (line,) = (block["text"] for block in blocks if block["language"] == "diff")
    assert [text[0] for text in line.splitlines()].count("+") == 1
    assert "-" not in [text[0] for text in line.splitlines()]


def test_every_block_with_a_file_is_in_a_section_that_is_followed() -> None:
    places = {
        name
        for name, section in SECTIONS.items()
        for block in _BLOCK.finditer(section)
        if block["path"] or block["language"] in ("console", "diff")
    }
    assert places == set(FOLLOWED)


def test_each_file_on_the_way_of_a_command_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("## Follow one command\n")[2].partition("\n## ")[0]
    files = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", section)
    assert len(files) > 20
    missing = [file for file in files if not (ROOT / "src/buildmatrix" / file).is_file()]
    assert missing == []
