"""Scripts of the CI recipes in `ci/`, with the environment that their systems give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CI, DOCS = ROOT / "ci", ROOT / "docs" / "ci"
_INPUT = re.compile(r"\$\[\[ inputs\.(\w+) \]\]")
_AZURE = re.compile(r"\$\{\{ parameters\.(\w+) \}\}")
_TEKTON = re.compile(r"\$\(params\.(\w+)\)")


@dataclass
class Script:
    """One script of a recipe, and what its system runs it with."""

    shell: tuple[str, ...]
    text: str
    environment: dict[str, str] = field(default_factory=dict)
    #: Whether it runs after a failure, too.
    always: bool = False


def blocks(page: str, language: str = "yaml") -> list[str]:
    """What a page of the documentation has to copy."""
    text = (DOCS / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def gitlab(inputs: Mapping[str, str]) -> tuple[dict[str, Any], list[Script]]:
    """The job of the component, and its script."""
    head, document = yaml.safe_load_all((CI / "gitlab" / "templates" / "audit.yml").read_text())
    declared = head["spec"]["inputs"]
    assert set(inputs) <= set(declared)
    values = {name: value.get("default") for name, value in declared.items()} | dict(inputs)
    assert None not in values.values(), "an input without a value"
    filled: dict[str, Any] = _filled(document, _INPUT, values)
    (job,) = filled.values()
    folder = {"$CI_PROJECT_DIR": "."}
    environment = {
        name: value["value"]
        if isinstance(value, dict)
        else re.sub(r"\$\w+", lambda match: folder[match[0]], value)
        for name, value in job["variables"].items()
    }
    assert all(job["variables"][name]["expand"] is False for name in environment if "TOOL" in name)
    return filled, [Script(("bash", "-e", "-o", "pipefail"), "\n".join(job["script"]), environment)]


def azure(parameters: Mapping[str, str]) -> list[Script]:
    """The scripts of the template."""
    template = yaml.safe_load((CI / "azure" / "audit.yml").read_text())
    declared = {item["name"]: item.get("default") for item in template["parameters"]}
    assert set(parameters) <= set(declared)
    values = declared | dict(parameters)
    assert None not in values.values(), "a parameter without a value"
    return [
        Script(
            ("bash", "--noprofile", "--norc"),
            step["bash"],
            {
                name: value.replace("$(Pipeline.Workspace)", ".")
                for name, value in _filled(step.get("env", {}), _AZURE, values).items()
            },
            step.get("condition") == "always()",
        )
        for step in template["steps"]
        if "bash" in step
    ]


def tekton(params: Mapping[str, str], result: Path) -> list[Script]:
    """The script of the task, which writes its result to `result`."""
    spec = yaml.safe_load((CI / "tekton" / "task.yaml").read_text())["spec"]
    declared = {item["name"]: item.get("default") for item in spec["params"]}
    assert set(params) <= set(declared)
    values = declared | dict(params)
    assert None not in values.values(), "a param without a value"
    (step,) = spec["steps"]
    assert "$(" not in step["script"], "a value would become a part of the script"
    places = {"$(workspaces.cache.path)": "", "$(results.exit-code.path)": str(result)}
    environment = {}
    for item in step["env"]:
        text = _filled(item["value"], _TEKTON, values)
        environment[item["name"]] = places.get(text, text)
    return [Script(_first_line(step["script"]), step["script"], environment)]


def jenkins(config: Mapping[str, str]) -> list[Script]:
    """The script of the shared step; Groovy's escapes are read as Groovy does."""
    text = (CI / "jenkins" / "vars" / "buildmatrix.groovy").read_text()
    (script,) = re.findall(r"sh '''(.*?)'''", text, re.DOTALL)
    environment = {}
    for name, expression in re.findall(r'"(TOOL_\w+)=\$\{config\.(.+?)\}"', text):
        key, _, default = expression.partition(" ?: ")
        environment[name] = config.get(key, default.strip("'"))
    assert set(environment) == {"TOOL_VERSION", "TOOL_EXTRAS", "TOOL_COMMAND", "TOOL_ARGS"}
    return [Script(_first_line(script), script.replace("\\\\", "\\"), environment)]


def _first_line(script: str) -> tuple[str, ...]:
    """What a script says that it is run with."""
    first, *_ = script.splitlines()
    assert first.startswith("#!")
    return tuple(first.removeprefix("#!").split())


def _filled(value: Any, name: re.Pattern[str], values: Mapping[str, str]) -> Any:
    """A document in which the names of inputs are their values; texts stay texts."""
    if isinstance(value, dict):
        return {
            _filled(key, name, values): _filled(item, name, values) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_filled(item, name, values) for item in value]
    return name.sub(lambda match: values[match[1]], value) if isinstance(value, str) else value
