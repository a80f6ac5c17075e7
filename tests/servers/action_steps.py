"""Steps of a GitHub action, run by bash as a runner would run them.

Actions that a step `uses` are not run: a function of the test says what they put out.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
_NAME = re.compile(r"\b(?:inputs|steps|github|runner)(?:\.[\w-]+)+")
#: Values of a context: `inputs.args`, `steps.run.outputs.report`.
Context = dict[str, str | bool]
#: Gives what an action puts out, from its name and what it is called with.
Used = Callable[[str, Mapping[str, str]], Mapping[str, str]]


@dataclass
class StepsRun:
    """What came of the steps."""

    context: Context
    code: int = 0
    log: str = ""
    summary: str = ""
    #: Names of the steps that ran, or the actions that they used.
    steps: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)


def run_action(
    action: Path,
    folder: Path,
    temporary: Path,
    inputs: Mapping[str, str],
    environment: Mapping[str, str],
    context: Mapping[str, str],
    used: Used,
    done: Mapping[str, Mapping[str, str]],
) -> StepsRun:
    """Run the steps of a composite action in `folder`; `done` has outputs of steps to skip."""
    document = yaml.safe_load(action.read_text())
    values: Context = {**context, "runner.os": "Linux", "runner.arch": "X64"}
    assert not set(inputs) - set(document["inputs"])
    for name, value in document["inputs"].items():
        values[f"inputs.{name}"] = filled(inputs.get(name, str(value.get("default", ""))), values)
    environment = {**environment, "GITHUB_ACTION_PATH": str(action.parent)}
    steps = document["runs"]["steps"]
    run = _run_steps(steps, folder, temporary, environment, values, used, done)
    for name, value in document["outputs"].items():
        run.outputs[name] = filled(value["value"], run.context)
    return run


def _run_steps(
    steps: Sequence[Mapping[str, Any]],
    folder: Path,
    temporary: Path,
    environment: Mapping[str, str],
    context: Context,
    used: Used,
    done: Mapping[str, Mapping[str, str]],
) -> StepsRun:
    run = StepsRun(dict(context))
    summary = temporary / "summary.md"
    summary.touch()
    for number, step in enumerate(steps):
        identifier = step.get("id", f"step-{number}")
        if not _holds(str(step.get("if", "success()")), run.context, run.code == 0):
            continue
        if identifier in done:
            outputs = done[identifier]
        elif "uses" in step:
            values = {key: filled(str(text), run.context) for key, text in step["with"].items()}
            outputs = used(step["uses"].partition("@")[0], values)
        else:
            output = temporary / f"output-{number}"
            output.touch()
            assert step["shell"] == "bash"
            texts = step.get("env", {}).items()
            finished = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
                cwd=folder,
                env={
                    **os.environ,
                    "GITHUB_OUTPUT": str(output),
                    "GITHUB_STEP_SUMMARY": str(summary),
                    "RUNNER_TEMP": str(temporary),
                    **environment,
                    **{key: filled(str(text), run.context) for key, text in texts},
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            run.log += finished.stdout
            run.code = run.code or finished.returncode
            outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
        run.steps.append(step.get("name") or step.get("uses", identifier).partition("@")[0])
        run.context |= {f"steps.{identifier}.outputs.{key}": text for key, text in outputs.items()}
    run.summary = summary.read_text()
    return run


def filled(text: str, context: Mapping[str, str | bool]) -> str:
    """A text with the values of its expressions."""
    return _EXPRESSION.sub(lambda match: _text(_value(match[1], context)), text)


def _text(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _value(expression: str, context: Mapping[str, str | bool]) -> str | bool:
    """The value of an expression as our files have them, read as Python."""
    text = re.sub(r"hashFiles\([^)]*\)", "'hash'", expression)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = text.replace("always()", "True")
    # What stands in quotes is a text.
    text = re.sub(r"'[^']*'|\btrue\b|\bfalse\b", _literal, text)
    shape = _NAME.sub("''", text)
    assert re.fullmatch(r"(?:'[^'\\]*'|True|False|and|or|==|!=|[() ])+", shape), shape
    # Names are looked up: a value is no part of what is read.
    text = _NAME.sub(lambda match: f"of('{match[0]}')", text)
    value = eval(text, {"of": lambda name: context.get(name, "")})
    assert isinstance(value, str | bool)
    return value


def _literal(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith("'") else match[0].title()


def _holds(condition: str, context: Mapping[str, str | bool], is_green: bool) -> bool:
    if not re.search(r"\b(always|success)\(\)", condition):
        condition = f"success() && ({condition})"
    return bool(_value(condition.replace("success()", str(is_green)), context))
