"""Plan of a pod: the same commands that the rungs would run here, in order.

A rung is a function that runs commands and judges their output. So that a cluster needs no second
set of rules, each rung is called twice: in advance, with a `Run` that only records the commands,
and with the log of a pod, with a `Run` that answers from it. Commands that depend on an earlier
answer cannot be known in advance, and are undecided on a cluster.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from buildmatrix.engines.model import Run, RunResult
from buildmatrix.rules.rungs import Rung

#: Placeholder in a plan for the mark of a run.
MARK = "@@mark@@"
#: Rungs that a pod can run: `static` needs no machine.
CLUSTER_RUNGS: Collection[Rung] = (
    "import", "device", "compute", "collective", "batch", "memory", "cold-start",
)  # fmt: skip
#: Commands of one rung; a rung that repeats endlessly stops here.
_MOST = 500


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a rung, with its time limit in seconds."""

    rung: Rung
    command: tuple[str, ...]
    seconds: float

    @property
    def key(self) -> str:
        """Hash of the command: a log with another one belongs to another plan."""
        text = json.dumps([self.rung, *self.command])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class UnansweredError(Exception):
    """A log lacks the end of a command; `output` is the available part."""

    def __init__(self, output: str = "", mark: str = "", *, is_planned: bool = True) -> None:
        super().__init__("the log does not say how a command ended")
        self.output, self.mark, self.is_planned = output, mark, is_planned


@dataclass(frozen=True, slots=True)
class Answer:
    """Output of one command in a log; `exit_code` is None if its end is missing."""

    lines: tuple[str, ...] = ()
    noise: str = ""
    exit_code: int | None = None
    timed_out: bool = False
    seconds: float | None = None


def plan_steps(rung: Rung, climb: Callable[[Run], object]) -> tuple[Step, ...]:
    """Return the commands that a rung runs without waiting for an answer."""
    written: list[Step] = []

    def run(command: Sequence[str], timeout_s: float) -> RunResult:
        if len(written) < _MOST:
            written.append(Step(rung, remove_mark(command)[0], timeout_s))
        return RunResult(0, "", timed_out=False)

    climb(run)
    return tuple(written)


@dataclass(slots=True)
class Replay:
    """Answers commands from a log: each once, equal commands in order."""

    rung: Rung
    answers: Mapping[str, Sequence[Answer]]
    _used: dict[str, int] = field(default_factory=dict)

    def __call__(self, command: Sequence[str], timeout_s: float) -> RunResult:  # noqa: ARG002
        """Answer like `engines.model.Run`. Raises `UnansweredError`."""
        plain, mark = remove_mark(command)
        key = Step(self.rung, plain, 0).key
        number = self._used.get(key, 0)
        self._used[key] = number + 1
        answers = self.answers.get(key, ())
        if number >= len(answers):
            raise UnansweredError(is_planned=False)
        answer = answers[number]
        output = "\n".join([*(mark + line for line in answer.lines), answer.noise])
        if answer.exit_code is None:
            raise UnansweredError(output, mark)
        return RunResult(answer.exit_code, output, answer.timed_out, answer.seconds)


def remove_mark(command: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return a command with `MARK` instead of its own mark, and that mark; see `make_call`."""
    try:
        options = json.loads(command[-1])
        mark = options["mark"]
    except (ValueError, TypeError, KeyError, IndexError):
        return tuple(command), ""
    text = json.dumps({**options, "mark": MARK}, separators=(",", ":"))
    return (*command[:-1], text), str(mark)
