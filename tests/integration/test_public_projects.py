"""Public projects, audited on the backends that they are for and on others.

What is expected stands in `tests/projects/projects.toml`, with the independent tool that said so;
`tests/projects/truth.py` asks those tools again. The files are those of the projects' releases, and
locks of conda those of a commit, judged without an index. Every test run audits ten projects with
wheels and all with locks of conda, the weekly one all projects.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from buildmatrix import cli

PROJECTS = Path(__file__).parents[1] / "projects"
PROJECT_OF = {
    project["name"]: project
    for project in tomllib.loads((PROJECTS / "projects.toml").read_text())["project"]
}
AUDITS = [
    pytest.param(
        project,
        audit,
        id=f"{name} {audit['source']}",
        marks=[
            *([pytest.mark.weekly] if "weekly" in {*project, *audit} else ()),
            *([pytest.mark.network] if project.keys() & {"release", "index"} else ()),
        ],
    )
    for name, project in PROJECT_OF.items()
    for audit in project["audit"]
]
#: Gate of a target → the exit code of a run with that target alone.
CODES = {"passed": 0, "failed": 1, "undecided": 3}


def run(
    project: dict[str, Any], audit: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, dict[str, Any]]:
    """Audit a copy of the project's files, resolved as of the day that the project names.

    In this process, and with the cache of all tests: wheels that projects share are read once.
    """
    copy = folder / project["name"]
    shutil.copytree(PROJECTS / project["name"], copy)
    if "exclude_newer" in project:
        (copy / "uv.toml").write_text(f'exclude-newer = "{project["exclude_newer"]}"\n')
    backends = [part for name in audit["gates"] for part in ("--backend", name)]
    monkeypatch.chdir(copy)
    with pytest.raises(SystemExit) as ended:
        cli.main(
            [
                *("--no-progress", "audit", audit["source"]),
                *("--python", audit.get("python", project["python"]), *backends),
                *("--no-vulnerabilities", "--format", "json", "-o", str(folder / "report.json")),
                *(() if project.keys() & {"release", "index"} else ("--offline",)),
            ]
        )
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads((folder / "report.json").read_text())


def expected(audit: dict[str, Any], kind: str, backend: str) -> list[dict[str, Any]]:
    return [entry for entry in audit.get(kind, []) if backend in entry["backends"]]


@pytest.mark.parametrize(("project", "audit"), AUDITS)
def test_a_project_is_judged_as_independent_tools_do(
    project: dict[str, Any],
    audit: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, report = run(project, audit, tmp_path, monkeypatch)
    gates = audit["gates"]
    order = [one for one in ("failed", "undecided", "passed") if one in gates.values()]
    messages = [finding["message"] for finding in report["findings"]]
    assert code == CODES[order[0]], messages
    found = {target["id"].split(":")[0]: target for target in report["targets"]}
    assert {name: found[name]["gates"]["lock"] for name in gates} == gates
    for text in audit.get("says", []):
        assert any(text in message for message in messages)
    for backend in gates:
        target = found[backend]["id"]
        judged = {
            row["name"]: row
            for row in report["distributions"]
            if row["backend"] == found[backend]["backend"]
        }
        assert len(judged) == audit["distributions"]
        entries = expected(audit, "verdict", backend)
        known = {name: entry["is"] for entry in entries for name in entry["names"]}
        wrong = {
            name: row["verdict"]
            for name, row in judged.items()
            if row["verdict"] in ("bloat", "broken")
        }
        assert wrong == known
        errors = {
            (finding["rule"], finding["distribution"])
            for finding in report["findings"]
            if finding["severity"] == "error" and finding["target"] == target
        }
        allowed = {
            (entry["rule"], name)
            for entry in expected(audit, "error", backend)
            for name in entry["names"]
        }
        assert allowed <= errors
        assert {(rule, name) for rule, name in errors - allowed if name not in known} == set()


def test_the_projects_are_twenty_with_source_and_licence() -> None:
    assert len({project["repository"] for project in PROJECT_OF.values()}) >= 20
    for project in PROJECT_OF.values():
        assert project["licence"] in ("MIT", "Apache-2.0", "BSD-3-Clause")
        assert len(project.get("sha256", "")) == 64 or len(project["commit"]) == 40
    size = sum(path.stat().st_size for path in PROJECTS.rglob("*") if path.is_file())
    assert size < 3_300_000
