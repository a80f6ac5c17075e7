"""Which line of a Dockerfile made which layer of the image that was built from it.

An image's history has the text of each instruction as BuildKit ran it: without flags, with its
lines joined, and lists in their shell form. So instructions of the last stage are matched with
layers by their text, from the top down; what lies below them is of the stage's base image.
Source: the Dockerfile reference, "Format"; moby/buildkit, dockerfile2llb.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

#: Bytes of a Dockerfile that is read.
LARGEST = 1 << 20
#: Instructions that make a layer.
_MAKERS = frozenset({"RUN", "COPY", "ADD", "WORKDIR"})
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+[Aa][Ss]\s+(\S+))?\s*$")
_FLAGS = re.compile(r"^(?:--[a-z-]+(?:=\S*)?\s+)+")
#: What the engine `oci` adds to a step of the history, with the distribution that a layer holds.
_OWN_MARK = re.compile(r" # buildmatrix\b.*", re.DOTALL)
_VARIABLE = re.compile(r"\$\{\w+\}|\$\w+")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, and the line that it begins in."""

    line: int
    keyword: str
    #: What stands behind the keyword, in one line.
    text: str

    @property
    def history_text(self) -> str:
        """As an image's history shows it."""
        text = _FLAGS.sub("", self.text)
        if text.startswith("["):
            with suppress(ValueError):
                text = " ".join(map(str, json.loads(text)))
        if self.keyword == "WORKDIR":
            text = text.strip("\"'")
        return f"{self.keyword} {text}"


@dataclass(slots=True)
class _Stage:
    base: str
    line: int
    name: str | None
    instructions: list[Instruction] = field(default_factory=list)


def read(path: Path) -> str | None:
    """The text of a Dockerfile, up to `LARGEST` bytes; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return None


def places(dockerfile: str, name: str, instructions: Sequence[str]) -> tuple[str, ...]:
    """Where each layer comes from: `NAME:12`, `of the base image ...`; empty texts if not known.

    `name` is what the Dockerfile is called, `instructions` those of the layers, the lowest first.
    """
    lines, base = _matched(dockerfile, instructions)
    if lines is None:
        return ("",) * len(instructions)
    base = f"of the base image {base} ({name}:{lines[-1]})"
    return tuple(f"{name}:{line}" if line else base for line in lines[:-1])


def base_layers(dockerfile: str, instructions: Sequence[str]) -> int:
    """How many layers, counted from the lowest, are the base image's; 0 where that is not known."""
    lines, _ = _matched(dockerfile, instructions)
    return sum(line == 0 for line in lines[:-1]) if lines is not None else 0


def _matched(dockerfile: str, instructions: Sequence[str]) -> tuple[list[int] | None, str]:
    """The line of each layer's instruction, 0 for those of the base, and last that of the FROM.

    None where the layers are not those of this Dockerfile; the text is the reference of the base.
    """
    stages = list(_stages(dockerfile))
    if not stages:
        return None, ""
    makers: list[Instruction] = []
    base, begun = "", 0
    at = len(stages) - 1
    while at >= 0:
        stage = stages[at]
        makers = [*(item for item in stage.instructions if item.keyword in _MAKERS), *makers]
        base, begun = _VARIABLE.sub("", stage.base), stage.line
        # A stage that begins with another one has its layers.
        base_name = stage.base.lower()
        at = next((n for n in range(at) if stages[n].name == base_name), -1)
    if any(_OWN_MARK.search(text) for text in instructions):
        return [*_own_lines(makers, instructions), begun], base
    lines = [0] * len(instructions)
    ahead = list(makers)
    layer = len(instructions)
    while layer and ahead:
        layer -= 1
        instruction = ahead.pop()
        # An instruction that changed nothing may have made no layer.
        while ahead and not _is_same(instruction, instructions[layer]):
            instruction = ahead.pop()
        if not _is_same(instruction, instructions[layer]):
            return None, base
        lines[layer] = instruction.line
    return (None if ahead else [*lines, begun]), base


def _own_lines(makers: Sequence[Instruction], instructions: Sequence[str]) -> list[int]:
    """The lines where the engine `oci` made the image: several layers may be of one instruction."""
    lines = [0] * len(instructions)
    ahead = len(makers) - 1
    for layer in reversed(range(len(instructions))):
        keyword, _, text = _OWN_MARK.sub("", instructions[layer]).partition(" ")
        text = Instruction(0, keyword, text).history_text
        at = next((n for n in range(ahead, -1, -1) if _is_same(makers[n], text)), None)
        if at is None:
            break  # what is below is of the base image
        ahead = at
        lines[layer] = makers[at].line
    return lines


def _is_same(instruction: Instruction, recorded: str) -> bool:
    """Whether an instruction is that of a layer; the history may have only a part of it."""
    written, shown = " ".join(instruction.history_text.split()), " ".join(recorded.split())
    if shown.endswith("..."):
        return written.startswith(shown.removesuffix("..."))
    return written == shown


def _stages(text: str) -> Iterator[_Stage]:
    stage: _Stage | None = None
    for instruction in _instructions(text):
        if instruction.keyword == "FROM":
            if stage is not None:
                yield stage
            match = _FROM.match(instruction.text)
            base, name = (match[1], match[2]) if match else (instruction.text, None)
            stage = _Stage(base, instruction.line, name.lower() if name else None)
        elif stage is not None:
            stage.instructions.append(instruction)
    if stage is not None:
        yield stage


def _instructions(text: str) -> Iterator[Instruction]:
    """The instructions; comments and empty lines inside of them do not belong to their text."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if not parts:
            begun = number
        goes_on = stripped.endswith("\\")
        parts.append(stripped.removesuffix("\\"))
        if not goes_on:
            keyword, _, rest = " ".join(parts).strip().partition(" ")
            yield Instruction(begun, keyword.upper(), " ".join(rest.split()))
            parts = []
