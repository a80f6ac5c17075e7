"""What a pod runs: the very commands that the rungs would run here, in their order.

A rung is a function that runs commands and judges what they print. So that a cluster needs no
second set of rules, each rung is asked twice: before, with a `Run` that only writes down what is to
be run, and when the log of a pod is there, with a `Run` that answers from it. What a rung asks for
only because of an earlier answer cannot be known before, and is undecided on a cluster.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from buildmatrix.engines.model import Run, RunResult
from buildmatrix.rules.rungs import Rung

#: Stands in a plan for the mark that a run makes for itself.
MARK = "@@mark@@"
#: Rungs that a pod can run: `static` needs no machine.
CLUSTER_RUNGS: Collection[Rung] = (
    "import", "device", "compute", "collective", "batch", "memory", "cold-start",
)  # fmt: skip
#: Commands of one rung; a rung that repeats without an end ends here.
_MOST = 500


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a rung, for so many seconds at most."""

    rung: Rung
    command: tuple[str, ...]
    seconds: float

    @property
    def key(self) -> str:
        """Names the command: a log that has another one is of another plan."""
        text = json.dumps([self.rung, *self.command])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Unanswered(Exception):
    """A log does not say how a command ended; `output` is what there is of it."""

    def __init__(self, output: str = "", mark: str = "", *, is_planned: bool = True) -> None:
        super().__init__("the log does not say how a command ended")
        self.output, self.mark, self.is_planned = output, mark, is_planned


@dataclass(frozen=True, slots=True)
class Answer:
    """What a log says of one command; `exit_code` is None where its end is missing."""

    lines: tuple[str, ...] = ()
    noise: str = ""
    exit_code: int | None = None
    timed_out: bool = False
    seconds: float | None = None


def steps(rung: Rung, climb: Callable[[Run], object]) -> tuple[Step, ...]:
    """The commands that a rung runs, as far as it does not wait for an answer."""
    written: list[Step] = []

    def run(command: Sequence[str], timeout_s: float) -> RunResult:
        if len(written) < _MOST:
            written.append(Step(rung, unmarked(command)[0], timeout_s))
        return RunResult(0, "", timed_out=False)

    climb(run)
    return tuple(written)


@dataclass(slots=True)
class Replay:
    """Answers commands from a log: each command once, those that are the same in their order."""

    rung: Rung
    answers: Mapping[str, Sequence[Answer]]
    _used: dict[str, int] = field(default_factory=dict)

    def __call__(self, command: Sequence[str], timeout_s: float) -> RunResult:  # noqa: ARG002
        """As `engines.model.Run`. Raises `Unanswered`."""
        plain, mark = unmarked(command)
        key = Step(self.rung, plain, 0).key
        number = self._used.get(key, 0)
        self._used[key] = number + 1
        answers = self.answers.get(key, ())
        if number >= len(answers):
            raise Unanswered(is_planned=False)
        answer = answers[number]
        output = "\n".join([*(mark + line for line in answer.lines), answer.noise])
        if answer.exit_code is None:
            raise Unanswered(output, mark)
        return RunResult(answer.exit_code, output, answer.timed_out, answer.seconds)


def unmarked(command: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """A command with `MARK` in place of its own mark, and that; see `protocol.call`."""
    try:
        options = json.loads(command[-1])
        mark = options["mark"]
    except (ValueError, TypeError, KeyError, IndexError):
        return tuple(command), ""
    text = json.dumps({**options, "mark": MARK}, separators=(",", ":"))
    return (*command[:-1], text), str(mark)
