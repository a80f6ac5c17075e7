"""The report of a fleet as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from markupsafe import Markup

from buildmatrix.base.data import replace
from buildmatrix.base.text import printable, size
from buildmatrix.judge.model import NODE_STATES
from buildmatrix.reports import page
from buildmatrix.reports.fleet import FleetFinding, FleetFit, FleetReport, FleetResult
from buildmatrix.reports.fleet_answer import FleetAnswer, Key, cause_key, counts
from buildmatrix.reports.fleet_sections import Limits, owner_name, sections
from buildmatrix.reports.page import vendor_name
from buildmatrix.reports.sections import Section

# Data of the page: compact, each result once, drawn by the page's script a few at a time


Json: TypeAlias = Any

#: Bytes of the data; a page has some more.
MOST_BYTES = 4_000_000
#: Characters of a text, and findings, places and layers of an image.
_MAX_TEXT, _FINDINGS, _PLACES, _LAYERS = 1000, 30, 5, 4
#: Characters allowed in JSON but not in HTML scripts.
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def embed(answer: FleetAnswer) -> tuple[str, bool]:
    """The data as JSON that may stand in HTML as it is, and whether it has all findings.

    Where the findings of single images are too many for a page, images have only their causes.
    """
    for is_whole in (True, False):
        text = json.dumps(
            _Tables(answer, is_whole).data(), separators=(",", ":"), ensure_ascii=False
        )
        if len(text.encode("utf-8", "replace")) <= MOST_BYTES:
            break
    return text.translate(_ESCAPES), is_whole


class _Tables:
    """Values that results share, each once: a result holds their indexes."""

    def __init__(self, answer: FleetAnswer, is_whole: bool) -> None:
        self._answer, self._is_whole = answer, is_whole
        self._tables: dict[str, dict[Json, int]] = {}
        self._findings: dict[FleetFinding | Key, int] = {}
        self._fits: dict[FleetFit, int] = {}
        self._causes = {cause.key: place for place, cause in enumerate(answer.causes)}

    def data(self) -> Json:
        """The tables, and a row for each result."""
        rows = [self._row(result) for result in self._answer.report.results]
        findings = [self._finding(finding) for finding in self._findings]
        fits = [
            [self._number("nodes", fit.node), fit.state, [_text(text) for text in fit.reasons[:4]]]
            for fit in self._fits
        ]
        return {
            **{name: list(table) for name, table in self._tables.items()},
            "findings": findings,
            "fits": fits,
            "causes": [_text(cause.title) for cause in self._answer.causes],
            "rows": rows,
        }

    def _number(self, table: str, value: str) -> int:
        held = self._tables.setdefault(table, {})
        return held.setdefault(_text(value), len(held))

    def _numbers(self, table: str, values: Iterable[str]) -> list[int]:
        return [self._number(table, value) for value in values]

    def _row(self, result: FleetResult) -> Json:
        findings: dict[FleetFinding | Key, None] = {}
        for finding in result.findings:
            if self._is_whole:
                findings[finding] = None
            elif counts(finding):
                findings[cause_key(finding)] = None
        layers = sorted(result.layers, key=lambda layer: -layer.unusable_size)
        vendors = (
            (self._number("vendors", vendor_name(held.vendor)), held.size, held.wasted)
            for held in result.vendors[:6]
            if held.vendor
        )
        return [
            self._number("repositories", result.repository),
            [_text(name) for name in result.names[:_PLACES]],
            _text(result.digest),
            self._number("backends", result.backend),
            self._number("owners", owner_name(result.owner)),
            result.state,
            result.installed,
            result.unusable,
            result.download,
            result.unusable_download,
            result.containers,
            _text(result.created[:10]),
            [number for held in vendors for number in held],
            [self._findings.setdefault(key, len(self._findings)) for key in findings][:_FINDINGS],
            [self._fits.setdefault(fit, len(self._fits)) for fit in result.fits],
            [
                part
                for layer in layers[:_LAYERS]
                if layer.unusable_size
                for part in (
                    self._number("layers", layer.digest.removeprefix("sha256:")[:12]),
                    layer.unusable_size,
                )
            ],
            self._number("errors", result.error) if result.error is not None else -1,
            self._numbers("places", result.places[:_PLACES]),
            self._numbers("nodes", result.node_classes),
            result.kind,
        ]

    def _finding(self, entry: FleetFinding | Key) -> Json:
        if isinstance(entry, tuple):
            place = self._causes[entry]
            first = self._answer.causes[place].first
            return [first.severity, first.rule, _text(first.message), _text(first.fix or ""), place]
        severity = "accepted" if entry.waived is not None else entry.severity
        remark = entry.waived if entry.waived is not None else entry.fix or ""
        place = self._causes[cause_key(entry)] if counts(entry) else -1
        return [severity, entry.rule, _text(entry.message), _text(remark), place]


def _text(text: str) -> str:
    return printable(text[:_MAX_TEXT])


# The page: what to do, then every image, searchable and sortable.
#
# Without scripts it shows the worst images, all causes, owners and node classes. 10,000 images take
# some megabytes.


#: Size limit for a responsive page.
_LIMITS: Limits = {
    "missing": 100, "causes": 1000, "reasons": 200, "worst": 50, "running": 20, "owners": 1000,
    "nodes": 500, "undecided": 200, "left-out": 200, "drift": 100, "drift-owners": 500,
    "notes": 100,
}  # fmt: skip
#: Rows that are seen before the rest is unfolded.
FEW = 8
#: Characters of a text.
_MAX_TITLE = 1000


def render(report: FleetReport) -> str:
    """The answer as one document; the same report gives the same bytes."""
    answer = FleetAnswer(report)
    data, is_whole = embed(answer)
    shown = sections(answer, _LIMITS)
    return page.render(
        "page/fleet.html.j2",
        styles=["page/fleet.css"],
        scripts=["page/fleet.js"],
        filters={"brief": _brief},
        report=report,
        answer=answer,
        advice=_brief(f"First: {answer.advice}" if answer.advice else ""),
        numbers=[
            ("failed", answer.failed),
            ("undecided", answer.undecided_images),
            *(
                (f"break on {node.node}", len(node.refused))
                for node in answer.nodes
                if node.is_asked
            ),
            (f"of {size(answer.pulls.size)} unused", size(answer.pulls.unusable)),
        ],
        sections={section.name: _shorten(section) for section in shown},
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
    return text[:_MAX_TITLE]


def _shorten(section: Section) -> Section:
    rows = (replace(row, cells=tuple(map(_brief, row.cells))) for row in section.rows)
    return replace(section, rows=tuple(rows))
