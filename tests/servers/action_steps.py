"""The steps of a composite GitHub action, run by bash as a runner would run them.

Actions that a step `uses` are not run: a function of the test says what they put out.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
_NAME = re.compile(r"\b(?:inputs|steps|github|runner)(?:\.[\w-]+)+")
#: What a runner does with `shell: bash`.
_BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")
#: Gives what an action puts out, from its name and what it is called with.
Used = Callable[[str, Mapping[str, str]], Mapping[str, str]]


@dataclass
class ActionRun:
    """What came of the steps."""

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
    github: Mapping[str, str],
    used: Used,
    done: Mapping[str, Mapping[str, str]] | None = None,
) -> ActionRun:
    """Run the steps of `action` in `folder`.

    `github` stands for the context of that name; `done` has the outputs of steps that are not to be
    run again.
    """
    document = yaml.safe_load(action.read_text())
    context: dict[str, str] = {f"github.{name}": value for name, value in github.items()}
    context |= {"runner.os": "Linux", "runner.arch": "X64"}
    for name, value in document["inputs"].items():
        given = inputs.get(name, str(value.get("default", "")))
        context[f"inputs.{name}"] = _filled(given, context)
    assert not set(inputs) - set(document["inputs"])
    run = ActionRun()
    summary = temporary / "summary.md"
    summary.touch()
    for number, step in enumerate(document["runs"]["steps"]):
        identifier = step.get("id", f"step-{number}")
        if identifier in (done or {}):
            outputs: Mapping[str, str] = (done or {})[identifier]
        elif not _holds(step.get("if", "success()"), context, run.code == 0):
            continue
        elif "uses" in step:
            values = {key: _filled(str(text), context) for key, text in step["with"].items()}
            outputs = used(step["uses"].partition("@")[0], values)
        else:
            output = temporary / f"output-{number}"
            output.touch()
            env = {key: _filled(str(text), context) for key, text in step["env"].items()}
            finished = subprocess.run(
                [*_BASH, "-c", step["run"]],
                cwd=folder,
                env={
                    **os.environ,
                    "GITHUB_ACTION_PATH": str(action.parent),
                    "GITHUB_OUTPUT": str(output),
                    "GITHUB_STEP_SUMMARY": str(summary),
                    "RUNNER_TEMP": str(temporary),
                    **environment,
                    **env,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            run.log += finished.stdout
            run.code = run.code or finished.returncode
            outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
        run.steps.append(step.get("name") or step["uses"].partition("@")[0])
        context |= {f"steps.{identifier}.outputs.{key}": text for key, text in outputs.items()}
    run.summary = summary.read_text()
    run.outputs = {
        name: _filled(value["value"], context) for name, value in document["outputs"].items()
    }
    return run


def _filled(text: str, context: Mapping[str, str]) -> str:
    return _EXPRESSION.sub(lambda match: _value(match[1], context), text)


def _value(expression: str, context: Mapping[str, str]) -> str:
    if expression.startswith("hashFiles("):
        return "hash"
    assert _NAME.fullmatch(expression), expression
    return context.get(expression, "")


def _holds(condition: Any, context: Mapping[str, str], is_green: bool) -> bool:
    """Whether a step runs: the expressions that our steps have, read as Python."""
    text = str(condition)
    if not re.search(r"\b(always|success|failure|cancelled)\(\)", text):
        text = f"success() && ({text})"
    text = text.replace("always()", "True").replace("success()", str(is_green))
    text = text.replace("&&", " and ").replace("||", " or ")
    text = _NAME.sub(lambda match: repr(context.get(match[0], "")), text)
    assert re.fullmatch(r"(?:'[^'\\]*'|True|False|and|or|==|!=|[() ])+", text), text
    return bool(eval(text))
