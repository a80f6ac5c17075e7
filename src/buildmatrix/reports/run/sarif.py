"""The report as SARIF 2.1.0 (OASIS), which code hosts show beside the lines of a change.

A finding is placed at its requirement line where the chain has one, else at the specification.
Paths inside an image are no files of the repository: they stand in the message. Files of the
repository are named as seen from its root, which code hosts ask for (`%SRCROOT%`).
"""

from __future__ import annotations

from collections.abc import Sequence
from os.path import normpath
from pathlib import Path, PurePath
from urllib.parse import quote

from buildmatrix.reports.json_form import TOOL, Json, dumps
from buildmatrix.reports.run.model import Report, requirement_line
from buildmatrix.rules.model import Finding, Severity
from buildmatrix.rules.registry import BY_CODE, RULES

_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "note"}
_NO_FILE = "buildmatrix.toml"


def render(report: Report, *, root: PurePath | None = None, top: PurePath | None = None) -> str:
    """The report as one SARIF log with one run.

    Args:
        report: what to render.
        root: the folder that the paths in it start from; absolute.
        top: the root of the repository; None where there is none: paths stay as they are.
    """
    codes = list(BY_CODE)
    log: Json = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": TOOL,
                        "version": report.tool.version,
                        "rules": [
                            {
                                "id": rule.code,
                                "name": rule.name,
                                "shortDescription": {"text": rule.summary},
                                "defaultConfiguration": {"level": _LEVELS[rule.severity]},
                            }
                            for rule in RULES
                        ],
                    }
                },
                "results": [_result(finding, codes, root, top) for finding in report.findings],
            }
        ],
    }
    return dumps(log)


def _result(
    finding: Finding, codes: Sequence[str], root: PurePath | None, top: PurePath | None
) -> Json:
    file, line = requirement_line(finding) or (_NO_FILE, None)
    region: dict[str, Json] = {"region": {"startLine": line}} if line is not None else {}
    place: dict[str, Json] = {"artifactLocation": _uri(file, root, top), **region}
    text = finding.message
    if finding.by_policy:
        text += f" ({finding.severity} {finding.by_policy})"
    if finding.fix is not None and finding.fix.is_offered:
        text += f". Fix: {finding.fix.text}"
    result: dict[str, Json] = {
        "ruleId": finding.rule,
        # 3.27.6: -1 for a rule that is not listed, as of a later version.
        "ruleIndex": codes.index(finding.rule) if finding.rule in codes else -1,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.target}: {text}" if finding.target else text},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"buildmatrix/v1": f"{finding.target}/{finding.fingerprint}"},
    }
    if finding.waived is not None:
        result["suppressions"] = [{"kind": "external", "justification": finding.waived}]
    return result


def _uri(name: str, root: PurePath | None, top: PurePath | None) -> dict[str, Json]:
    """An artifactLocation (3.4): relative to the repository for what is in it."""
    path = Path(normpath(root / name)) if root is not None else Path(name)
    if top is not None and path.is_relative_to(top):
        name = path.relative_to(top).as_posix()
    elif path.is_absolute() and (top is not None or Path(name).is_absolute()):
        return {"uri": path.as_uri()}
    return {"uri": quote(name), "uriBaseId": "%SRCROOT%"}
