"""Every command line that a document shows is one that buildmatrix takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from buildmatrix.cli import group

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    if "reference" not in path.parts
)
#: What ends a command line in a shell, or in a document: `...`, and what may stand there.
END = {"|", ">", ">>", "<", "&&", "||", ";", "...", "2>&1", "2>", "\\"}


def command_lines(text: str) -> Iterator[str]:
    """What blocks and backticks show after the word buildmatrix."""
    fenced = re.compile(r"^ *```.*?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
    for block in fenced.findall(text):
        joined = re.sub(r"\\\n\s*", " ", block)
        # `run: >-` of YAML: lines that are indented alike are one.
        joined = re.sub(
            r">-\n(\s+)(.*(?:\n\1.*)*)", lambda m: m[2].replace("\n" + m[1], " "), joined
        )
        for line in joined.splitlines():
            if match := re.search(
                r"(?:^|[\s$;(])buildmatrix (?![=:{(\[\d]|import )(\S.*)", line.split(" # ")[0]
            ):
                yield match[1]
    for span in re.findall(r"`buildmatrix ([^`]+)`", fenced.sub("", text)):
        yield " ".join(span.split())


def checked(line: str) -> None:
    """Raises `click.UsageError` where a command or an option does not exist."""
    # What a CI system fills in is a word; a shell's substitution ends with its bracket.
    line = re.sub(r"\$\{\{.*?\}\}|\$\[\[.*?\]\]|\$\(\w+\)", "WORD", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>;&)")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        # A quotation that a sentence cut.
        words = line.split()
    ends = [n for n, word in enumerate(words) if word in END or word.strip("|>;&)") == ""]
    words = words[: ends[0]] if ends else words
    command: click.Command = group
    while isinstance(command, click.Group):
        # click keeps the option for help that it makes here, also for tests that print it.
        context = click.Context(command, **command.context_settings)
        _, words, _ = command.make_parser(context).parse_args(words)
        if not words or words[0].isupper():
            return
        name, *words = words
        inner = command.get_command(context, name)
        if inner is None:
            raise click.UsageError(f"there is no command {name}")
        command = inner
    parser = command.make_parser(click.Context(command, **command.context_settings))
    try:
        parser.parse_args([word for word in words if word not in ("[", "]")])
    except click.BadOptionUsage as error:
        # `--select` alone, in a sentence.
        if "requires an argument" not in str(error):
            raise


def test_the_command_lines_of_all_documents_exist() -> None:
    mistakes = []
    for document in DOCUMENTS:
        for line in command_lines(document.read_text()):
            try:
                checked(line)
            except click.UsageError as error:
                place = document.relative_to(ROOT)
                mistakes.append(f"{place}: buildmatrix {line}: {error.format_message()}")
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.parametrize("line", ["scna dir:x", "scan dir:x --bakend cpu", "audit a.txt --fixx"])
def test_a_mistake_would_be_seen(line: str) -> None:
    with pytest.raises(click.UsageError):
        checked(line)


def test_there_are_many() -> None:
    lines = [line for path in DOCUMENTS for line in command_lines(path.read_text())]
    assert len(lines) > 120
