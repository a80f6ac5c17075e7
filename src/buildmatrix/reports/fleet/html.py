"""The answer as one HTML page: what to do, then every image, to be searched and sorted.

Without scripts it has the worst images, all causes, owners and node classes. Every result is in it
once, as data, of which the script draws a page at a time: 10,000 images are some megabytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from buildmatrix.reports.fleet.answer import FleetAnswer
from buildmatrix.reports.fleet.embedded import embedded
from buildmatrix.reports.fleet.model import FleetReport
from buildmatrix.reports.fleet.section import Limits, owner_name
from buildmatrix.reports.fleet.sections import sections
from buildmatrix.reports.page import document
from buildmatrix.reports.page.vendors import vendor_name
from buildmatrix.rules.model import NODE_STATES

#: What a browser takes without delay.
_LIMITS: Limits = {
    "missing": 100, "causes": 1000, "reasons": 200, "worst": 50, "running": 20, "owners": 1000,
    "nodes": 500, "undecided": 200, "left-out": 200, "drift": 100, "drift-owners": 500,
    "notes": 100,
}  # fmt: skip
#: Rows that are seen before the rest is unfolded.
FEW = 8
#: Characters of a text.
_LENGTH = 1000
#: A word in a cell -> how it is colored.
_CHIPS: Mapping[str, str] = {
    "error": "error", "warning": "warning", "failed": "failed", "undecided": "undecided",
    "passed": "passed", "refused": "bad", "worse": "bad", "better": "good", "new": "note",
    "gone": "not-run", "changed": "fair",
}  # fmt: skip


def render(report: FleetReport) -> str:
    """The answer as one document; the same report gives the same bytes."""
    answer = FleetAnswer(report)
    data, is_whole = embedded(answer)
    shown = sections(answer, _LIMITS)
    return document.render(
        "fleet/page/fleet.html.j2",
        styles=["fleet/page/fleet.css"],
        scripts=["fleet/page/fleet.js"],
        filters={"brief": _brief},
        report=report,
        answer=answer,
        sections={section.name: section for section in shown},
        chips=_CHIPS,
        few=FEW,
        # Made of escapes alone where HTML would see markup.
        data=Markup(data),  # noqa: S704
        is_whole=is_whole,
        backends=sorted({result.backend for result in report.results if result.backend}),
        owners=[owner_name(totals.owner) for totals in answer.owners],
        vendors=[vendor_name(row.vendor) for row in answer.vendors if row.vendor],
        node_states=NODE_STATES,
    )


def _brief(text: str) -> str:
    return text[:_LENGTH]
