"""The distributions of a report as a snapshot for GitHub's dependency submission API.

Source: https://docs.github.com/rest/dependency-graph/dependency-submission. A manifest is a target;
its distributions are named by their package URLs. GitHub asks for the commit, the job and a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from os.path import normpath
from pathlib import PurePath

from buildmatrix.reports.json_form import TOOL, Json, dumps
from buildmatrix.reports.repository import Job
from buildmatrix.reports.run import bill
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.composition import DistributionBytes
from buildmatrix.rules.model import TargetResult
from buildmatrix.rules.registry import rule_of
from buildmatrix.text import printable

_HOME = "https://github.com/buildmatrix/buildmatrix"


def render(
    report: Report,
    *,
    job: Callable[[], Job],
    time: datetime | None = None,
    root: PurePath | None = None,
    top: PurePath | None = None,
) -> str:
    """The report as one snapshot. `job` says for which commit. Raises what `job` raises."""
    run = job()
    when = (time or datetime.fromtimestamp(0, UTC)).astimezone(UTC)
    # Jobs of a matrix have one name: without what they are about, the last one would count alone.
    about = report.targets[0].id if len(report.targets) == 1 else report.subject
    submitted: dict[str, Json] = {"id": run.id, "correlator": printable(f"{run.name} {about}")}
    if run.url:
        submitted["html_url"] = run.url
    return dumps(
        {
            "version": 0,
            "sha": run.sha,
            "ref": run.ref,
            "job": submitted,
            "detector": {"name": TOOL, "version": printable(report.tool.version), "url": _HOME},
            "scanned": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "manifests": {
                printable(target.id): _manifest(target, report, root, top)
                for target in report.targets
            },
        }
    )


def _manifest(
    target: TargetResult, report: Report, root: PurePath | None, top: PurePath | None
) -> Json:
    distributions = target.composition.distributions if target.composition is not None else ()
    parts = {
        part.name: part
        for part in sorted(distributions, key=lambda part: part.version)
        if part.name
    }
    verdicts = {
        (verdict.name, verdict.version): verdict.verdict
        for verdict in report.distributions
        if verdict.is_about(target.id, target.backend)
    }
    required: dict[str, list[str]] = {}
    for part in parts.values():
        purl = bill.purl(part.name, part.version)
        for asker in part.required_by:
            if purl is not None:
                required.setdefault(asker, []).append(purl)
    resolved: dict[str, Json] = {}
    for name in sorted(parts):
        part = parts[name]
        purl = bill.purl(name, part.version)
        if purl is None:
            continue
        form: dict[str, Json] = {
            "package_url": purl,
            "relationship": "direct" if bill.is_root(part) else "indirect",
            "scope": "runtime",
            "dependencies": [*sorted(required.get(name, ()))],
        }
        verdict = verdicts.get((name, part.version))
        if verdict is not None:
            form["metadata"] = {f"{TOOL}:verdict": verdict}
        resolved[purl] = form
    # What has no wheel was not read, and a report of an earlier version says nothing of who
    # requires what.
    named = {
        *verdicts,
        *(
            (finding.distribution or "", finding.version or "")
            for finding in report.findings
            if rule_of(finding.rule).unknown == "wheel" and finding.is_about(target.id)
        ),
    }
    for name, version in sorted(named):
        purl = bill.purl(name, version)
        if name not in parts and purl is not None:
            resolved[purl] = {"package_url": purl, "scope": "runtime"}
    manifest: dict[str, Json] = {"name": printable(target.id), "resolved": resolved}
    manifest["metadata"] = {f"{TOOL}:backend": printable(target.backend)}
    file = _file(parts.values(), root, top)
    if file:
        manifest["file"] = {"source_location": printable(file)}
    return manifest


def _file(parts: Iterable[DistributionBytes], root: PurePath | None, top: PurePath | None) -> str:
    """The file that names most of what was asked for, as seen from the root of the repository."""
    files = Counter(part.line.rpartition(":")[0] for part in parts if part.line)
    if not files:
        return ""
    name = max(sorted(files), key=lambda file: files[file])
    if root is None or top is None:
        return name
    path = PurePath(normpath(root / name))
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else ""
