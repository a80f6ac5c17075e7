"""Tags that were set to images which lay in a registry without them, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from buildmatrix.reports.json_form import THIS_TOOL, Tool

#: `already`: the tag named the image before, perhaps since an earlier run that was stopped.
MoveState = Literal["moved", "already", "failed", "not-tried"]


@dataclass(frozen=True, slots=True)
class TagMove:
    """One tag, and the image that it is to name."""

    #: `ghcr.io/acme/inferno:1.4.0-cpu`
    reference: str
    target: str
    digest: str
    #: What it named before this run, to go back to; None for a tag that was not there, and where
    #: nobody asked.
    before: str | None = None
    state: MoveState = "not-tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """Result of `promote`."""

    schema: Literal["buildmatrix/promotion/1"] = "buildmatrix/promotion/1"
    tool: Tool = THIS_TOOL
    #: What was built.
    subject: str
    #: Whether all tags name their images now.
    promoted: bool
    moves: tuple[TagMove, ...]
    #: Why not; one sentence each.
    problems: tuple[str, ...] = ()
