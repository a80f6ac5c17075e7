"""Snapshots for GitHub's dependency submission API, by its reference (read 2026-11-22)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from bills import WORST, bill, hostile, hostile_bill, part, target
from hypothesis import example, given, settings
from packageurl import PackageURL
from test_report_formats import finding

from buildmatrix.errors import UsageError
from buildmatrix.reports import repository
from buildmatrix.reports.formats import RUN, Destination, by_name
from buildmatrix.reports.repository import Job, job_of
from buildmatrix.reports.run.model import Report

WHEN = datetime(2026, 11, 22, 23, 5, 6, tzinfo=UTC)
JOB = Job("ab" * 20, "refs/heads/main", "17", "CI audit")
TEXT = {"type": "string", "minLength": 1}
METADATA = {
    "type": "object",
    "maxProperties": 8,
    "additionalProperties": {"type": ["string", "boolean", "number", "null"]},
}


def closed(required: str, **properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


#: https://docs.github.com/rest/dependency-graph/dependency-submission, the parameters of
#: "Create a snapshot of dependencies for a repository".
SCHEMA = closed(
    "version job sha ref detector scanned",
    version={"type": "integer"},
    job=closed("id correlator", id=TEXT, correlator=TEXT, html_url=TEXT),
    sha={"type": "string", "minLength": 40, "maxLength": 40},
    ref={"type": "string", "pattern": "^refs/"},
    detector=closed("name version url", name=TEXT, version=TEXT, url=TEXT),
    metadata=METADATA,
    scanned={"type": "string", "format": "date-time"},
    manifests={
        "type": "object",
        "additionalProperties": closed(
            "name",
            name={"type": "string"},
            file=closed("", source_location=TEXT),
            metadata=METADATA,
            resolved={
                "type": "object",
                "additionalProperties": closed(
                    "",
                    package_url={"type": "string", "pattern": "^pkg"},
                    metadata=METADATA,
                    relationship={"enum": ["direct", "indirect"]},
                    scope={"enum": ["runtime", "development"]},
                    dependencies={"type": "array", "items": TEXT},
                ),
            },
        ),
    },
)


def snapshot(one: Report, **to: Any) -> dict[str, Any]:
    to = {"time": WHEN, "job": lambda: JOB} | to
    text = by_name(RUN, "github-snapshot").render(one, Destination(**to))
    form: dict[str, Any] = json.loads(text)
    jsonschema.validate(form, SCHEMA, format_checker=jsonschema.FormatChecker())
    return form


def test_distributions_are_resolved_with_what_requires_them() -> None:
    form = snapshot(bill())
    (manifest,) = form["manifests"].values()
    resolved = manifest["resolved"]
    assert {purl: (one["relationship"], one["dependencies"]) for purl, one in resolved.items()} == {
        "pkg:pypi/demo@1.0": ("direct", ["pkg:pypi/numpy@1.0"]),
        "pkg:pypi/numpy@1.0": ("indirect", ["pkg:pypi/six@1.0"]),
        "pkg:pypi/six@1.0": ("indirect", []),
    }
    assert resolved["pkg:pypi/demo@1.0"]["metadata"] == {"buildmatrix:verdict": "bloat"}
    assert manifest["file"] == {"source_location": "base.in"}
    assert (form["sha"], form["ref"]) == ("ab" * 20, "refs/heads/main")
    assert form["scanned"] == "2026-11-22T23:05:06Z"


def test_files_are_named_as_seen_from_the_root_of_the_repository() -> None:
    form = snapshot(bill(), root=Path("/repo/services/a"), top=Path("/repo"))
    (manifest,) = form["manifests"].values()
    assert manifest["file"]["source_location"] == "services/a/base.in"
    outside = part("demo", line="/elsewhere/base.in:1")
    form = snapshot(bill(targets=(target(outside),)), root=Path("/repo"), top=Path("/repo"))
    assert "file" not in form["manifests"]["cpu-py311-server"]


def test_what_was_not_read_is_named_without_a_graph() -> None:
    """A report of an earlier version, and a distribution without a wheel."""
    old = bill(targets=(replace(target(), composition=None),))
    (manifest,) = snapshot(old)["manifests"].values()
    assert manifest["resolved"] == {
        "pkg:pypi/demo@1.0": {"package_url": "pkg:pypi/demo@1.0", "scope": "runtime"}
    }
    source = replace(finding("BM107", "source-only", distribution="built"), version="2.0")
    (manifest,) = snapshot(bill(source))["manifests"].values()
    assert "pkg:pypi/built@2.0" in manifest["resolved"]
    assert len(manifest["resolved"]) == 4


def test_jobs_of_a_matrix_do_not_replace_one_another() -> None:
    one, other = (bill(targets=(target(part("demo"), id=id),)) for id in ("a", "b"))
    assert snapshot(one)["job"]["correlator"] == "CI audit a"
    assert snapshot(other)["job"]["correlator"] == "CI audit b"


def test_package_urls_of_local_versions_are_quoted() -> None:
    torch = replace(part("Torch_X"), version="2.9.0+cu128")
    one = replace(bill(targets=(target(torch),)), distributions=())
    (purl,) = snapshot(one)["manifests"]["cpu-py311-server"]["resolved"]
    assert purl == "pkg:pypi/torch-x@2.9.0%2Bcu128"
    assert PackageURL.from_string(purl).version == "2.9.0+cu128"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("SHA", "REF", "RUN_ID", "WORKFLOW", "JOB", "EVENT_NAME", "EVENT_PATH"):
        monkeypatch.delenv(f"GITHUB_{name}", raising=False)
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.setattr(repository, "_asked", lambda *words: "")
    return monkeypatch


def test_the_job_is_that_of_github(environment, tmp_path: Path) -> None:
    for name, value in {
        "SHA": "cd" * 20,
        "REF": "refs/heads/x",
        "RUN_ID": "7",
        "WORKFLOW": "CI",
        "JOB": "audit",
        "REPOSITORY": "acme/demo",
    }.items():
        environment.setenv(f"GITHUB_{name}", value)
    url = "https://github.com/acme/demo/actions/runs/7"
    assert job_of(tmp_path) == Job("cd" * 20, "refs/heads/x", "7", "CI audit", url)
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"head": {"sha": "ef" * 20}}}))
    environment.setenv("GITHUB_EVENT_NAME", "pull_request")
    environment.setenv("GITHUB_EVENT_PATH", str(event))
    assert job_of(tmp_path).sha == "ef" * 20
    for broken in ("[]", "{", '{"pull_request": {"head": {"sha": 1}}}', "[" * 100_000):
        event.write_text(broken)
        assert job_of(tmp_path).sha == "cd" * 20


@pytest.mark.parametrize(("sha", "ref"), [("", ""), ("main", "refs/heads/x"), ("a" * 40, "main")])
def test_no_commit_is_an_error_of_usage(environment, tmp_path: Path, sha: str, ref: str) -> None:
    environment.setenv("GITHUB_SHA", sha)
    environment.setenv("GITHUB_REF", ref)
    with pytest.raises(UsageError, match="set GITHUB_SHA"):
        job_of(tmp_path)


@given(hostile)
@example("")
@example(WORST)
@settings(max_examples=25, deadline=None)
def test_any_text_fits(text: str) -> None:
    snapshot(hostile_bill(text), root=Path("/repo"), top=Path("/repo"))
