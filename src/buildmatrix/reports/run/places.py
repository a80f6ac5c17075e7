"""Places of findings in a repository, for formats that are read beside its files."""

from __future__ import annotations

from os.path import normpath, relpath
from pathlib import PurePath

from buildmatrix.reports.run.model import requirement_line
from buildmatrix.rules.model import Finding

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
