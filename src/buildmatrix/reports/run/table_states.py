"""States of gates, as tables write them."""

from __future__ import annotations

from buildmatrix.reports.terminal import Style
from buildmatrix.rules.model import GateState

#: State → word of at most six letters, and its style.
STATES: dict[GateState, tuple[str, Style]] = {
    "passed": ("ok", "green"),
    "failed": ("FAILED", "red"),
    "undecided": ("open", "yellow"),
    "not-run": ("-", "dim"),
}
