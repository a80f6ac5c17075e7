"""The report with one line per cause, for editors and the problem matchers of CI runners."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import normpath, relpath
from pathlib import PurePath

from buildmatrix.base.text import count
from buildmatrix.judge.model import Finding, Severity
from buildmatrix.reports.run.groups import FindingGroup, group_by_text, group_findings, name_targets
from buildmatrix.reports.run.model import Report, requirement_line, unread

# Places of findings in a repository


#: Where a finding stands whose chain begins elsewhere.
_NO_FILE = "buildmatrix.toml"


def file_and_line(finding: Finding) -> tuple[str, int]:
    """The requirement line of a finding, else the beginning of the specification."""
    return requirement_line(finding) or (_NO_FILE, 1)


def path_from(start: PurePath | None, name: str, root: PurePath | None) -> str:
    """A path in a report, whose paths start from `root`, as seen from `start`; both absolute.

    Without `start`, which a folder outside of any repository has none of, it stays as it is.
    """
    if start is None or root is None:
        return normpath(name)
    return relpath(normpath(root / name), start)


# One line per cause: `requirements.in:3: error: what was found; fix: what to do [CODE]`.
#
# This is the format of compilers and mypy. A finding without a requirement line starts with its
# subject in place of the file. Accepted findings are omitted.


def render(report: Report, *, root: PurePath | None = None, here: PurePath | None = None) -> str:
    """The report as lines; empty where nothing is to be said.

    Args:
        report: what to render.
        root: the folder that the paths in it start from; absolute.
        here: the folder that the paths in the text start from; absolute.
    """
    return "".join(f"{line}\n" for line in _lines(report, root, here))


def _lines(report: Report, root: PurePath | None, here: PurePath | None) -> Iterator[str]:
    ids = report.ids
    errors = group_by_text(
        (target.id, target.error) for target in report.targets if target.error is not None
    )
    for shared in errors:
        first, *_ = shared.text.split("\n")
        about = name_targets(shared.targets, ids)
        yield _line(report.subject, "error", f"{about}: {first}", "target")
    for group in group_findings(report.findings, ids):
        if group.first.waived is None:
            line = requirement_line(group.first)
            place = f"{path_from(here, line[0], root)}:{line[1]}" if line else report.subject
            yield _line(place, group.first.severity, _text(report, group), group.first.rule)
    for item in unread(report):
        yield _line(report.subject, "warning", f"not read: {item.path}: {item.why}", "unread")


def _line(place: str, severity: Severity, text: str, code: str) -> str:
    return f"{place}: {severity}: {text} [{code}]"


def _text(report: Report, group: FindingGroup) -> str:
    """Return the finding, its other places, and its fix."""
    message = group.messages[0].text
    if group.others:
        message += f", with {count(len(group.others), 'more finding')} of this cause"
    targets = [target for target in group.targets if target]
    if targets and len(report.targets) > 1:
        message += f" ({targets[0] if len(targets) == 1 else count(len(targets), 'target')})"
    cures = [shared.text for shared in group.cures(audited=report.is_audit)]
    if not cures:
        return message
    return f"{message}; {cures[0]}" + (f"; {len(cures) - 1} more" if len(cures) > 1 else "")
