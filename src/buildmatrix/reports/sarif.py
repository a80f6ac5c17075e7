"""The report as SARIF 2.1.0 (OASIS), which code hosts and editors show beside the lines of a file.

A finding is placed at its requirement line where the chain has one, else at the specification.
Files in an image or a wheel are logical locations, as they are not in the repository. Files of
the repository are relative to its root (`%SRCROOT%`), as code hosts require.

Limits are those of GitHub's code scanning (https://docs.github.com/code-security/code-scanning/inte
grating-with-code-scanning/sarif-support-for-code-scanning, read 2026-11-22): it refuses a run of
more than 25,000 results, and shows the 5,000 most severe.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from os.path import normpath
from pathlib import Path, PurePath
from urllib.parse import quote

from msgspec import Struct, field

from buildmatrix.base.text import count, printable
from buildmatrix.judge.model import SEVERITY_RANK, Finding, Severity
from buildmatrix.judge.registry import BY_CODE, RULES, Rule, rule_page
from buildmatrix.reports.json_form import TOOL, Json, dumps
from buildmatrix.reports.replacements import Region, Replacement, replacements, requirement_region
from buildmatrix.reports.run import Report, is_undecided, requirement_line, unread

#: Reader of a file of the repository, by its name in the report; None without text.
TextOf = Callable[[str], str | None]

_PAGES = "https://github.com/buildmatrix/buildmatrix/blob/main/docs/rules"
_NO_FILE = "buildmatrix.toml"
MOST_RESULTS, SHOWN_RESULTS = 25_000, 5_000
_PLACES = {code: place for place, code in enumerate(BY_CODE)}
_PLACEHOLDER = re.compile(r"\{(\d+)\}", re.ASCII)
#: Locations of one result that GitHub keeps.
_MOST_RELATED = 100
#: Subjects of rules, by the range of codes (docs/contract.md).
_TAGS = {
    "1": "declared",
    "2": "files",
    "3": "linking",
    "4": "device-code",
    "5": "loading",
    "6": "image",
    "7": "compatibility",
    "8": "advisories",
    "9": "housekeeping",
}
#: Of 10. No report has the score of an advisory: it says how GitHub is to sort these alerts, which
#: count as security alerts only with a number.
_SECURITY: dict[Severity, str] = {"error": "8.0", "warning": "5.0", "note": "2.0"}
_PROBLEM: dict[Severity, str] = {
    "error": "error",
    "warning": "warning",
    "note": "recommendation",
}
_EXITS = {
    0: "every requested gate ran and passed",
    1: "there are findings that fail the run",
    2: "the usage or the specification is wrong",
    3: "undecided: something could not be read, reached, resolved or installed",
    4: "the build failed",
    5: "the engine or another component is missing or too old",
    70: "a defect of buildmatrix",
    130: "interrupted",
}


def render(
    report: Report,
    *,
    root: PurePath | None = None,
    top: PurePath | None = None,
    text_of: TextOf | None = None,
    exit_code: int | None = None,
) -> str:
    """The report as one SARIF log with one run.

    Args:
        report: what to render.
        root: the folder that the paths in it start from; absolute.
        top: the root of the repository; None where there is none: paths stay as they are.
        text_of: reads a file that the report names, for the columns of requirements.
        exit_code: that of the command that made the report, where it is known.
    """
    is_written = report.fixes is not None and report.fixes.written
    writer = _Results(root, top, text_of, is_written)
    results, notices = _within_limits(report.findings)
    log: Json = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": TOOL,
                        "version": printable(report.tool.version),
                        "informationUri": _PAGES.partition("/blob/")[0],
                        "rules": [_rule(rule) for rule in RULES],
                    }
                },
                "automationDetails": {"id": _category(report)},
                "columnKind": "utf16CodeUnits",
                "originalUriBaseIds": {
                    "%SRCROOT%": {"description": {"text": "The root of the repository."}}
                },
                "invocations": [_invocation(report, exit_code, notices)],
                "results": [writer.result(finding) for finding in results],
                "properties": {
                    "subject": printable(report.subject),
                    "catalogue": printable(report.tool.catalogue),
                    "targets": [printable(target.id) for target in report.targets],
                },
            }
        ],
    }
    return dumps(log)


def _category(report: Report) -> str:
    """Return the category that tells runs of one repository apart (3.17.3): GitHub's category and a
    slash.

    Shards of a matrix that are about one target each are one category each; a report of several
    targets is one, so that alerts of a target end with it.
    """
    of = report.ids
    return f"{TOOL}/{quote(printable(of[0] if len(of) == 1 else report.subject), safe='')}/"


def _within_limits(findings: Sequence[Finding]) -> tuple[Sequence[Finding], list[str]]:
    """The findings that fit, in their order, and what is to be said of the others."""
    if len(findings) <= SHOWN_RESULTS:
        return findings, []
    notices = [
        f"GitHub shows the {SHOWN_RESULTS:,} most severe of {count(len(findings), 'result')}"
    ]
    if len(findings) > MOST_RESULTS:

        def weight(place: int) -> tuple[bool, int]:
            finding = findings[place]
            return finding.waived is not None, -SEVERITY_RANK[finding.severity]

        most_severe = sorted(range(len(findings)), key=weight)[:MOST_RESULTS]
        notices.append(
            f"{count(len(findings) - MOST_RESULTS, 'result')} left out, the least severe: GitHub "
            f"takes {MOST_RESULTS:,} of one run; --format json has all of them"
        )
        findings = [findings[place] for place in sorted(most_severe)]
    return findings, notices


def _rule(rule: Rule) -> Json:
    """Return the reportingDescriptor (3.49) of a rule, with the help that GitHub asks of each."""
    page = rule_page(rule.code)
    # GitHub sorts and filters alerts by these.
    tags: list[Json] = ["accelerator", _TAGS[rule.code[2]]]
    properties: dict[str, Json] = {
        "tags": tags,
        "precision": "very-high",
        "problem.severity": _PROBLEM[rule.severity],
    }
    if rule.scope == "advisories":
        # CWE-1395: dependency on a vulnerable third-party component.
        tags += ["security", "external/cwe/cwe-1395"]
        properties["security-severity"] = _SECURITY[rule.severity]
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        # Below its heading and the line about its severity.
        "fullDescription": {"text": " ".join(page.split("\n\n")[2].split())},
        "help": {"text": page, "markdown": page},
        "helpUri": f"{_PAGES}/{rule.code}.md",
        "defaultConfiguration": {"level": rule.severity},
        "properties": properties,
    }


def _invocation(report: Report, exit_code: int | None, notices: Sequence[str]) -> Json:
    form: dict[str, Json] = {
        "executionSuccessful": exit_code in (None, 0, 1) and not is_undecided(report)
    }
    if exit_code is not None:
        form["exitCode"] = exit_code
        form["exitCodeDescription"] = _EXITS.get(exit_code, "unknown")
    said = [
        *(("error", f"{item.path} could not be read: {item.why}") for item in unread(report)),
        *(("error", f"{item.id}: {item.error}") for item in report.targets if item.error),
        *(
            ("error", f"{item.id}: the gate `{gate}` is undecided")
            for item in report.targets
            for gate, state in item.gates.items()
            if state == "undecided" and not item.error
        ),
        *(("note", item.left_out) for item in report.targets if item.left_out),
        *(("warning", notice) for notice in notices),
    ]
    form["toolExecutionNotifications"] = [
        {"level": level, "message": {"text": _text(text)}} for level, text in dict.fromkeys(said)
    ]
    return form


class _Results(Struct):
    """Makes results; reads each file of the repository once."""

    root: PurePath | None
    top: PurePath | None
    text_of: TextOf | None
    #: True if the files have their fixes already.
    is_written: bool
    texts: dict[str, str | None] = field(default_factory=dict)

    def result(self, finding: Finding) -> Json:
        """One result (3.27)."""
        text = finding.message
        if finding.by_policy:
            text += f" ({finding.severity} {finding.by_policy})"
        fix = finding.offered_fix
        if fix is not None:
            text += f". Fix: {fix.text}"
        result: dict[str, Json] = {
            "ruleId": finding.rule,
            # 3.27.6: -1 for a rule that is not listed, as of a later version.
            "ruleIndex": _PLACES.get(finding.rule, -1),
            "level": finding.severity,
            "message": {"text": _text(f"{finding.target}: {text}" if finding.target else text)},
            "locations": [self._location(finding)],
            "partialFingerprints": {
                "buildmatrix/v1": printable(f"{finding.target}/{finding.fingerprint}")
            },
            "properties": _properties(finding),
        }
        if related := _related(finding):
            result["relatedLocations"] = related
        if fix is not None and fix.patch and not self.is_written:
            changes = self._changes(replacements(fix.patch))
            if changes:
                description: Json = {"text": _text(fix.text)}
                result["fixes"] = [{"description": description, "artifactChanges": changes}]
        if finding.waived is not None:
            result["suppressions"] = [
                {
                    "kind": "external",
                    "status": "accepted",
                    "justification": printable(finding.waived),
                }
            ]
        return result

    def _location(self, finding: Finding) -> Json:
        file, line = requirement_line(finding) or (_NO_FILE, None)
        physical: dict[str, Json] = {"artifactLocation": self._uri(file)}
        if line is not None:
            required = finding.chain[1] if len(finding.chain) > 1 else finding.distribution or ""
            name = required.partition(" ")[0].partition("[")[0]
            text = self._text_of(file)
            known = requirement_region(text, line, name) if text and name else Region(line)
            physical["region"] = dict(known.form)
        location: dict[str, Json] = {"physicalLocation": physical}
        inside = [part for part in (finding.label, finding.path) if part]
        if inside:
            location["logicalLocations"] = [
                _logical("/".join(inside), "resource" if finding.path else "package")
            ]
        return location

    def _text_of(self, file: str) -> str | None:
        if file not in self.texts:
            self.texts[file] = self.text_of(file) if self.text_of is not None else None
        return self.texts[file]

    def _changes(self, files: dict[str, tuple[Replacement, ...]]) -> list[Json]:
        """Return the replacements of a fix in each file (3.56); none for a file that changed
        meanwhile.
        """
        for file, changes in files.items():
            text = self._text_of(file)
            if text is not None and not all(change.fits(text) for change in changes):
                return []
        return [
            {
                "artifactLocation": self._uri(file),
                "replacements": [
                    {
                        "deletedRegion": dict(change.region.form),
                        "insertedContent": {"text": change.text},
                    }
                    for change in changes
                ],
            }
            for file, changes in files.items()
            if changes
        ]

    def _uri(self, name: str) -> dict[str, Json]:
        """An artifactLocation (3.4): relative to the repository for what is in it."""
        root, top = self.root, self.top
        path = Path(normpath(root / name)) if root is not None else Path(name)
        if top is not None and path.is_relative_to(top):
            name = path.relative_to(top).as_posix()
        elif path.is_absolute() and (top is not None or Path(name).is_absolute()):
            return {"uri": path.as_uri()}
        return {"uri": quote(printable(name)), "uriBaseId": "%SRCROOT%"}


def _related(finding: Finding) -> list[Json]:
    """The chain behind the requirement line (3.27.22)."""
    chain = finding.chain[1:] if requirement_line(finding) else finding.chain
    return [
        {
            "id": number,
            "message": {"text": _text(part)},
            "logicalLocations": [_logical(part, "resource" if "/" in part else "package")],
        }
        for number, part in enumerate(chain[:_MOST_RELATED], 1)
    ]


def _logical(name: str, kind: str) -> Json:
    """A logicalLocation (3.33): what lies in an image or in a wheel."""
    plain = printable(name)
    return {"name": plain.rpartition("/")[2] or plain, "fullyQualifiedName": plain, "kind": kind}


def _properties(finding: Finding) -> dict[str, Json]:
    values = {
        "target": finding.target,
        "backend": finding.backend,
        "vendor": finding.vendor,
        "distribution": finding.distribution,
        "version": finding.version,
        "path": finding.path,
    }
    form: dict[str, Json] = {key: printable(value) for key, value in values.items() if value}
    if finding.also:
        form["also"] = [printable(target) for target in finding.also]
    return form


def _text(text: str) -> str:
    """Foreign text as a message (3.11): on one line, without links and placeholders.

    Other braces stay as they are, though 3.11.5 wants them doubled: code hosts show what is
    written, and a fix is copied from there.
    """
    plain = printable(text).replace("](", "\\](")
    return _PLACEHOLDER.sub(r"{{\1}}", plain)
