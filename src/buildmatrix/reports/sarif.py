"""The report as SARIF 2.1.0 (OASIS), which code hosts show beside the lines of a change.

A finding is placed at its requirement line where the chain has one, else at the specification.
Paths inside an image are no files of the repository: they stand in the message. Files of the
repository are named as seen from its root, which code hosts ask for (`%SRCROOT%`).
"""

from __future__ import annotations

import json
import re
from os.path import normpath
from pathlib import Path, PurePath
from urllib.parse import quote

from buildmatrix.reports.json import Json
from buildmatrix.reports.model import TOOL, Report
from buildmatrix.rules.model import Finding, Severity
from buildmatrix.rules.registry import BY_CODE, RULES

_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "note"}
_LINE = re.compile(r"(?P<file>[^:]+):(?P<line>[1-9]\d*)")
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
                        "version": report.version,
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
                "results": [
                    _result(one, codes.index(one.rule), _uri(_file(one), root, top))
                    for one in report.findings
                ],
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _result(one: Finding, rule_index: int, place: dict[str, Json]) -> Json:
    text = one.message
    if one.fix is not None and one.fix.is_offered:
        text += f". Fix: {one.fix.text}"
    result: dict[str, Json] = {
        "ruleId": one.rule,
        "ruleIndex": rule_index,
        "level": _LEVELS[one.severity],
        "message": {"text": f"{one.target}: {text}" if one.target else text},
        "locations": [{"physicalLocation": {"artifactLocation": place, **_region(one)}}],
        "partialFingerprints": {"buildmatrix/v1": f"{one.target}/{one.fingerprint}"},
    }
    if one.waived is not None:
        result["suppressions"] = [{"kind": "external", "justification": one.waived}]
    return result


def _file(one: Finding) -> str:
    found = _LINE.fullmatch(one.chain[0]) if one.chain else None
    return found["file"] if found is not None else _NO_FILE


def _region(one: Finding) -> dict[str, Json]:
    found = _LINE.fullmatch(one.chain[0]) if one.chain else None
    return {"region": {"startLine": int(found["line"])}} if found is not None else {}


def _uri(name: str, root: PurePath | None, top: PurePath | None) -> dict[str, Json]:
    """An artifactLocation (3.4): relative to the repository for what is in it."""
    path = Path(normpath(root / name)) if root is not None else Path(name)
    if top is not None and path.is_relative_to(top):
        name = path.relative_to(top).as_posix()
    elif path.is_absolute() and (top is not None or Path(name).is_absolute()):
        return {"uri": path.as_uri()}
    return {"uri": quote(name), "uriBaseId": "%SRCROOT%"}
