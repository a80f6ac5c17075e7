"""SOURCEs that are no tree, by their looks: saved reports, and what declares what is installed."""

from __future__ import annotations

from pathlib import Path

from buildmatrix.errors import UsageError

#: Kinds of SOURCE that declare what would be installed.
_DECLARED = ("lock", "requirements", "pyproject", "pypi")


def report_file(text: str) -> Path | None:
    """The saved report that is meant, or None. Raises `UsageError` for `report:` alone."""
    if text.startswith("report:"):
        if text == "report:":
            raise UsageError(
                "report: names nothing; write report: and a file that --format json wrote"
            )
        return Path(text.removeprefix("report:"))
    path = Path(text)
    return path if path.suffix == ".json" and path.is_file() else None


def is_declared(text: str) -> bool:
    """Whether a SOURCE declares what would be installed, and so is read on the package index."""
    kind, colon, rest = text.partition(":")
    if colon and kind in _DECLARED:
        return True
    if colon and kind == "wheel":
        return "://" in rest
    if colon and kind in ("dir", "docker", "oci", "tar", "report", "target"):
        return False
    if "://" in text:
        return True
    from buildmatrix.sources.asked import looks

    return not Path(text).is_dir() and looks(text) not in (None, "wheel")
