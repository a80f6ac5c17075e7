"""What users of the Python API write, as mypy sees it; `test_api` runs it, too."""

from __future__ import annotations

from pathlib import Path

import buildmatrix


def wasted_bytes(requirements: Path) -> int:
    """How much of a CPU image would be wasted by these requirements."""
    audited = buildmatrix.audit(requirements, backends=["cpu"], python="3.12")
    totals = [target.audit for target in audited.document.targets]
    return sum(total.foreign_download for total in totals if total is not None)


def codes(tree: Path, backend: str) -> list[str]:
    """The codes of what does not belong there."""
    scanned = buildmatrix.scan(tree, backend=backend)
    return sorted({finding.rule for finding in scanned.document.findings})


def chains(tree: Path, library: str) -> list[str]:
    """Where it is, and who asked for it."""
    answer = buildmatrix.why(tree, library).document
    return [subject.node.label for subject in answer.subjects]


def is_worse(before: Path, after: Path) -> bool:
    """Whether something was smuggled in between the two."""
    return not buildmatrix.diff(before, after, backend="cpu").ok


def markdown(tree: Path) -> str:
    """For a comment."""
    return buildmatrix.scan(tree, backend="cpu").render("markdown")
