"""Recipes for CI systems are what their systems take; so is what their pages have to copy."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from document_blocks import BLOCKS
from groovy_parser.parser import parse_groovy_content
from recipes import CI, ROOT, azure, blocks, gitlab, jenkins, tekton


def files(page: str) -> list[dict[str, Any]]:
    """The blocks that are a file, not a part of one."""
    documents = map(yaml.safe_load, blocks(page))
    return [document for document in documents if isinstance(document, dict)]


def check(schema: str, documents: list[dict[Any, Any]], folder: Path) -> None:
    paths = []
    for number, document in enumerate(documents):
        path = folder / f"{number}.yml"
        # PyYAML reads `on` as YAML 1.1 does.
        named = {{True: "on"}.get(key, key): value for key, value in document.items()}
        path.write_text(yaml.safe_dump(named))
        paths.append(path)
    # Patterns in some of these schemas are no patterns of JavaScript in its strict form.
    command = ["check-jsonschema", "--regex-variant", "python", "--builtin-schema", schema, *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert paths and done.returncode == 0, done.stdout


def test_github(tmp_path: Path) -> None:
    check("vendor.github-workflows", files("github.md"), tmp_path)


def workflow(text: str) -> dict[str, Any]:
    """A workflow with what a page shows of it: jobs, or the steps of one."""
    part = yaml.safe_load(text)
    if isinstance(part, dict) and "steps" not in part:
        jobs = part.get("jobs", part)
        # A part of the workflow above leaves out what stands there.
        jobs = {name: {"runs-on": "ubuntu-latest", **job} for name, job in jobs.items()}
        return {"on": "push", "jobs": {"plan": {"runs-on": "x", "steps": [{"run": "x"}]}, **jobs}}
    steps = part["steps"] if isinstance(part, dict) else part
    return {"on": "push", "jobs": {"job": {"runs-on": "ubuntu-latest", "steps": steps}}}


def test_parts_of_workflows_of_github_on_all_pages(tmp_path: Path) -> None:
    parts = [
        block.text
        for block in BLOCKS
        if block.language == "yaml" and not block.marker
        # Whole files are held above and below.
        if not block.document.startswith("docs/ci/") or block.text.lstrip().startswith("- uses:")
    ]
    assert len(parts) >= 5
    check("vendor.github-workflows", [workflow(part) for part in parts], tmp_path)


def test_gitlab(tmp_path: Path) -> None:
    job, _ = gitlab({"version": "0.1.0", "args": "requirements.in --backend 'cpu' # $HOME"})
    check("vendor.gitlab-ci", [job, *files("gitlab.md")], tmp_path)


def test_azure(tmp_path: Path) -> None:
    template = yaml.safe_load((CI / "azure" / "audit.yml").read_text())
    check("vendor.azure-pipelines", [template, *files("azure.md")], tmp_path)


def test_jenkins() -> None:
    step = (CI / "jenkins" / "vars" / "buildmatrix.groovy").read_text()
    pipeline = (CI / "jenkins" / "Jenkinsfile").read_text()
    for text in (step, pipeline):
        assert parse_groovy_content(text).data == "compilation_unit"
    assert blocks("jenkins.md", "groovy") == [pipeline]
    with pytest.raises(Exception, match="Unexpected"):
        parse_groovy_content(pipeline.replace("}", "", 1))


def test_tekton() -> None:
    """What the API server would refuse: names that nobody declares, and what is required."""
    task = yaml.safe_load((CI / "tekton" / "task.yaml").read_text())
    pipeline = yaml.safe_load((CI / "tekton" / "pipeline.yaml").read_text())
    assert blocks("tekton.md") == [(CI / "tekton" / "pipeline.yaml").read_text()]
    for document, kind in ((task, "Task"), (pipeline, "Pipeline")):
        assert (document["apiVersion"], document["kind"]) == ("tekton.dev/v1", kind)
        spec = document["spec"]
        declared = {
            *(f"params.{item['name']}" for item in spec["params"]),
            *(f"workspaces.{item['name']}.path" for item in spec["workspaces"]),
            *(f"results.{item['name']}.path" for item in spec.get("results", ())),
        }
        assert set(re.findall(r"\$\(([\w.-]+)\)", yaml.safe_dump(spec))) <= declared
    params = {item["name"]: item for item in task["spec"]["params"]}
    names = {item["name"] for item in pipeline["spec"]["tasks"]}
    for item in pipeline["spec"]["tasks"]:
        assert set(item.get("runAfter", ())) <= names
        if item["taskRef"]["name"] == task["metadata"]["name"]:
            given = {param["name"] for param in item["params"]}
            assert given <= set(params)
            assert {name for name, param in params.items() if "default" not in param} <= given
            bound = {space["name"] for space in item["workspaces"]}
            spaces = task["spec"]["workspaces"]
            assert {space["name"] for space in spaces if not space.get("optional")} <= bound


@pytest.mark.parametrize("extras", ["", "keyless,zstd"])
@pytest.mark.parametrize("system", ["gitlab", "jenkins", "azure", "tekton"])
def test_extras_are_installed_with_the_version(system: str, extras: str, tmp_path: Path) -> None:
    """Stand-ins of uvx and python print what they are called with."""
    values = {"version": "0.1.0", "args": "requirements.in", "extras": extras}
    script = {
        "gitlab": lambda: gitlab(values)[1],
        "jenkins": lambda: jenkins(values),
        "azure": lambda: azure(values),
        "tekton": lambda: tekton(values, tmp_path / "result"),
    }[system]()[0]
    for name in ("uvx", "python"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [*script.shell, "-c", script.text],
        cwd=tmp_path,
        env={**script.environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    words = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    (place,) = (number for number, word in enumerate(words) if word == "--from")
    assert words[place + 1 : place + 3] == [f"buildmatrix[{extras}]==0.1.0", "buildmatrix"]
    assert "requirements.in" in words


@pytest.mark.parametrize(
    ("version", "extras", "wanted"),
    [
        ("", "", "ACTION"),
        ("", "keyless", "ACTION[keyless]"),
        ("0.1.0", "", "buildmatrix==0.1.0"),
        ("0.1.0", "keyless, zstd", "buildmatrix[keyless,zstd]==0.1.0"),
        ("==0.1.0", "", None),
        ("0.1.0", "keyless] @ https://example.com/x #", None),
    ],
)
def test_the_action_installs_extras(
    version: str,
    extras: str,
    wanted: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    variables = {"VERSION": version, "EXTRAS": extras, "KEEP": "false"}
    places = {"RUNNER_TEMP": tmp_path, "GITHUB_OUTPUT": tmp_path / "output"}
    for name, value in {**variables, **places, "GITHUB_ACTION_PATH": "ACTION"}.items():
        monkeypatch.setenv(name, str(value))
    commands: list[list[object]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    code = runpy.run_path(str(CI / "github" / "install.py"))["main"]()
    if wanted is None:
        assert (code, commands) == (2, []) and "::error::" in capsys.readouterr().out
    else:
        assert (code, commands[-1][-1]) == (0, wanted)


@pytest.mark.parametrize("page", ["gitlab.md"])
def test_inputs_of_a_page_are_those_of_the_recipe(page: str) -> None:
    text = (ROOT / "docs" / "ci" / page).read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (?:`(.*?)`)? ?\|", text, re.MULTILINE)
    head, _ = yaml.safe_load_all((CI / "gitlab" / "templates" / "audit.yml").read_text())
    inputs = head["spec"]["inputs"]
    assert dict(rows) == {name: value.get("default", "") for name, value in inputs.items()}


def test_the_caller_of_the_reusable_workflow_gives_inputs_that_it_has() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "matrix.yml").read_text())
    # PyYAML reads `on` as YAML 1.1 does.
    inputs = workflow[True]["workflow_call"]["inputs"]
    (caller,) = (block for block in files("github.md") if block["name"] == "images")
    (job,) = caller["jobs"].values()
    assert job["uses"].startswith("buildmatrix/buildmatrix/.github/workflows/matrix.yml@v")
    assert set(job["with"]) <= set(inputs)
    assert {name for name, value in inputs.items() if value.get("required")} <= set(job["with"])
    assert job["permissions"] == {"contents": "read", "packages": "write", "id-token": "write"}


def test_every_page_is_listed() -> None:
    listed = re.findall(r"\(ci/([\w-]+\.md)\)", (ROOT / "docs" / "ci.md").read_text())
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs" / "ci").iterdir())


def test_actions_of_all_pages_and_recipes_are_pinned_with_their_versions() -> None:
    """As our own workflows have them, so that one update of Dependabot shows what to change."""
    pages = [ROOT / "action.yml", *(ROOT / "docs").rglob("*.md")]
    own = "".join(path.read_text() for path in (ROOT / ".github/workflows").iterdir())
    text = "".join(path.read_text() for path in pages)
    used = re.findall(r"^[ -]*uses: (.+)", text, re.MULTILINE)
    others = [line for line in used if not line.startswith("buildmatrix/")]
    assert len(others) > 10
    own += (ROOT / "action.yml").read_text()
    for line in others:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
        commit = line.partition("@")[2]
        # A page names `actions/cache`, the action its two halves.
        assert f"@{commit}" in own, line


def test_recipes_that_install_uv_pin_the_same_version() -> None:
    recipes = ("action.yml", ".github/workflows/matrix.yml", "ci")
    paths = [path for name in recipes for path in (ROOT / name, *(ROOT / name).rglob("*"))]
    text = "".join(path.read_text() for path in paths if path.is_file())
    versions = re.findall(r"\buv==([\w.]+)", text)
    assert len(versions) == 3 and len(set(versions)) == 1
    assert not re.search(r"pip install.* uv$", text, re.MULTILINE)
