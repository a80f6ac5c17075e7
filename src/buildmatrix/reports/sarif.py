"""The report as SARIF 2.1.0 (OASIS), which code hosts show beside the lines of a change.

A finding is placed at its requirement line where the chain has one, else at the specification.
Paths inside an image are no files of the repository: they stand in the message.
"""

from __future__ import annotations

import json
import re

from buildmatrix.reports.json import Json
from buildmatrix.reports.model import TOOL, Report
from buildmatrix.rules.model import Finding, Severity
from buildmatrix.rules.registry import BY_CODE, RULES

_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "note"}
_LINE = re.compile(r"(?P<file>[^:]+):(?P<line>[1-9]\d*)")
_NO_FILE = "buildmatrix.toml"


def render(report: Report) -> str:
    """The report as one SARIF log with one run."""
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
                "results": [_result(one, codes.index(one.rule)) for one in report.findings],
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _result(one: Finding, rule_index: int) -> Json:
    text = one.message
    if one.fix is not None and one.fix.is_offered:
        text += f". Fix: {one.fix.text}"
    result: dict[str, Json] = {
        "ruleId": one.rule,
        "ruleIndex": rule_index,
        "level": _LEVELS[one.severity],
        "message": {"text": f"{one.target}: {text}" if one.target else text},
        "locations": [{"physicalLocation": _location(one)}],
        "partialFingerprints": {"buildmatrix/v1": f"{one.target}/{one.fingerprint}"},
    }
    if one.waived is not None:
        result["suppressions"] = [{"kind": "external", "justification": one.waived}]
    return result


def _location(one: Finding) -> dict[str, Json]:
    found = _LINE.fullmatch(one.chain[0]) if one.chain else None
    if found is None:
        return {"artifactLocation": {"uri": _NO_FILE}}
    return {
        "artifactLocation": {"uri": found["file"]},
        "region": {"startLine": int(found["line"])},
    }
