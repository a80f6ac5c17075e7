"""The page of each rule, from the installed package or from a checkout."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from buildmatrix.errors import UsageError
from buildmatrix.rules.registry import BY_CODE


def rule_page(code: str) -> str:
    """The page of a rule as Markdown. Raises `UsageError` for a code that no rule has."""
    rule = BY_CODE.get(code.upper())
    if rule is None:
        raise UsageError(
            f"there is no rule {code}; `buildmatrix rules` lists all of them ({', '.join(BY_CODE)})"
        )
    name = f"{rule.code}.md"
    packaged = resources.files("buildmatrix.rules") / "pages" / name
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    # In a checkout the pages lie where readers look for them; the wheel gets a copy.
    return (Path(__file__).parents[3] / "docs" / "rules" / name).read_text(encoding="utf-8")
