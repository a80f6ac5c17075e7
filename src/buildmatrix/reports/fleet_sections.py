"""Sections of a fleet report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias, get_args
from urllib.parse import urlencode

from buildmatrix.base.text import count, listing, printable, size
from buildmatrix.reports import markdown, terminal
from buildmatrix.reports.fleet import (
    Change,
    ChangeEnd,
    FleetChange,
    FleetReport,
    FleetResult,
    bytes_more,
    running,
)
from buildmatrix.reports.fleet_answer import FleetAnswer, FleetCause, NodeAnswer, ReasonGroup
from buildmatrix.reports.markdown import plain, rich
from buildmatrix.reports.page import vendor_name
from buildmatrix.reports.sections import (
    Row,
    Section,
    drop_empty_columns,
    filled,
    limit,
    sentences,
    signed_size,
)

#: Section → how many of its rows are shown; all of those that are not named, and no section for 0.
Limits: TypeAlias = Mapping[str, int]

NO_OWNER = "(no owner)"


def owner_name(owner: str) -> str:
    """An owner as people read it."""
    return owner or NO_OWNER


# All sections, in reading order


def sections(answer: FleetAnswer, limits: Limits) -> Sequence[Section]:
    """The answers that there are, with as many rows as `limits` say."""
    made = filled(
        sentences("missing", "Not read", answer.report.missing),
        _causes(answer),
        *_nodes(answer),
        _bytes(answer),
        *_worst(answer),
        _owners(answer),
        _vendors(answer),
        *_reasons(answer),
        *_drift(answer),
        sentences("notes", "Notes", answer.report.notes),
    )
    return [
        limit(drop_empty_columns(section, NO_OWNER), limits.get(section.name))
        for section in made
        if limits.get(section.name) != 0
    ]


def full_report_hint(report: FleetReport) -> str:
    """Return the command that shows everything a short form omits."""
    return (
        f"the worst of {count(len(report.results), 'result')} are shown; --format html=FILE is a "
        "page with all of them, to search and sort; --format json=FILE has all data"
    )


def share(part: int, whole: int) -> str:
    """A part in percent; never 0 % of something, nor 100 % of less."""
    if not whole:
        return ""
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1 %"
    return f"{min(int(percent), 99) if part < whole else 100} %"


def _row(*cells: str, **query: object) -> Row:
    """A row, and what shows its images on the page."""
    return Row(cells, urlencode(query))


def _bytes(answer: FleetAnswer) -> Section:
    layers, pulls = answer.layers, answer.pulls
    rows = (
        (
            count(layers.layers, "distinct layer"),
            layers.size,
            layers.unusable,
            "unused in every image that has them",
        ),
        (
            "open",
            layers.size if layers.unusable_open else 0,
            layers.unusable_open,
            "of these, in layers of undecided images",
        ),
        (
            "beside these",
            layers.size if layers.unusable_in_some else 0,
            layers.unusable_in_some,
            "unused in some images, used in others",
        ),
        (f"pulls of {count(pulls.images, answer.noun)}", pulls.size, pulls.unusable, ""),
        (
            f"pulls for {count(pulls.containers, 'container')}",
            pulls.running,
            pulls.unusable_running,
            "as if each had pulled its image",
        ),
    )
    return Section(
        "bytes",
        "Bytes that cannot be used",
        ("bytes of", "bytes", "unused", "share", "counted"),
        tuple(
            Row((title, size(whole), size(part), share(part, whole), text))
            for title, whole, part, text in rows
            if whole
        ),
        frozenset({1, 2, 3}),
        subject=0,
    )


def _causes(answer: FleetAnswer) -> Section:
    def row(place: int, cause: FleetCause) -> Row:
        first = cause.first
        about = f"{cause.title}: {first.message}" if len(cause.about) > 1 else first.message
        return _row(
            first.severity,
            ", ".join(cause.rules),
            str(len(cause.results)),
            size(cause.size) if cause.size else "",
            str(len(cause.owners) or ""),
            f"{cause.fix} ({about})" if cause.fix else about,
            cause=place,
        )

    return Section(
        "causes",
        "What to do first",
        ("severity", "rule", f"{answer.noun}s", "unused", "owners", "what to do, and why"),
        tuple(row(place, cause) for place, cause in enumerate(answer.causes)),
        frozenset({2, 3, 4}),
        frozenset({0}),
    )


def _nodes(answer: FleetAnswer) -> Iterator[Section]:
    def row(node: NodeAnswer) -> Row:
        runs = {
            state: len(results)
            for state, results in node.states.items()
            if state not in ("refused", "undecided")
        }
        others = ", ".join(f"{number} {state}" for state, number in runs.items() if state != "ok")
        return _row(
            node.node,
            str(len(node.refused)),
            str(node.open),
            str(sum(runs.values())),
            others and f"{others} of these",
            node=node.node,
        )

    yield Section(
        "nodes",
        "On node classes",
        ("node class", "break", "undecided", "run", "how"),
        tuple(map(row, answer.nodes)),
        frozenset({1, 2, 3}),
        subject=0,
    )
    yield Section(
        "reasons",
        "What breaks there, and why",
        ("node class", "state", f"{answer.noun}s", "why"),
        tuple(
            _row(
                node.node,
                reason.state,
                str(len(reason.results)),
                reason.text,
                node=node.node,
                fit=reason.state,
            )
            for node in [node for node in answer.nodes if node.is_asked] or answer.nodes
            for reason in node.reasons
            if reason.state in ("refused", "undecided")
        ),
        frozenset({2}),
        frozenset({1}),
    )


def _image(result: FleetResult, *cells: str) -> Row:
    about = (result.state, owner_name(result.owner), result.backend, result.title)
    return _row(*cells, *about, q=result.title)


def _worst(answer: FleetAnswer) -> Iterator[Section]:
    about = ("state", "owner", "backend", answer.noun)
    yield Section(
        "worst",
        f"{answer.noun.capitalize()}s with the most unused bytes",
        ("unused", "of a pull of", "containers", *about),
        tuple(
            _image(
                result,
                size(result.unusable_download),
                size(result.download),
                str(result.containers or ""),
            )
            for result in answer.worst
        ),
        frozenset({0, 1, 2}),
        frozenset({3}),
    )
    yield Section(
        "running",
        "Running images with the most unused bytes in pulls",
        ("unused", "containers", "each", *about),
        tuple(
            _image(
                result,
                size(running(result)),
                str(result.containers),
                size(result.unusable_download),
            )
            for result in answer.worst_running
        ),
        frozenset({0, 1, 2}),
        frozenset({3}),
    )


def _owners(answer: FleetAnswer) -> Section:
    is_named = any(totals.owner for totals in answer.owners)
    return Section(
        "owners",
        "Owners",
        (f"{answer.noun}s", "failed", "undecided", "unused", "containers", "owner"),
        tuple(
            _row(
                str(totals.pulls.images),
                str(totals.failed),
                str(totals.undecided),
                size(totals.pulls.unusable),
                str(totals.pulls.containers or ""),
                owner_name(totals.owner),
                owner=owner_name(totals.owner),
            )
            for totals in (answer.owners if is_named else ())
        ),
        frozenset({0, 1, 2, 3, 4}),
    )


def _vendors(answer: FleetAnswer) -> Section:
    return Section(
        "vendors",
        "Vendors, as installed",
        (f"{answer.noun}s", "bytes", "unused", f"in {answer.noun}s", "vendor"),
        tuple(
            _row(
                str(totals.images),
                size(totals.size),
                size(totals.unusable),
                str(totals.unusable_images),
                vendor_name(totals.vendor),
                vendor=vendor_name(totals.vendor),
            )
            for totals in answer.vendors
            if totals.vendor
        ),
        frozenset({0, 1, 2, 3}),
    )


def _reasons(answer: FleetAnswer) -> Iterator[Section]:
    """Return what is undecided, and what was not judged, with some of the images."""

    def row(reason: ReasonGroup, **query: str) -> Row:
        titles = listing((result.title for result in reason.results), 2)
        return _row(str(len(reason.results)), f"{reason.text} ({titles})", **query)

    yield Section(
        "undecided",
        "Undecided",
        (f"{answer.noun}s", "why"),
        tuple(row(reason, state="undecided") for reason in answer.undecided),
        frozenset({0}),
    )
    yield Section(
        "left-out",
        "Extras and groups that were not requested",
        (f"{answer.noun}s", "what"),
        tuple(row(reason, q=reason.results[0].title) for reason in answer.left_out),
        frozenset({0}),
    )


def _drift(answer: FleetAnswer) -> Iterator[Section]:
    drift = answer.report.drift
    if drift is None:
        return
    kinds = [change.change for change in drift.changes]
    more = sum(map(bytes_more, drift.changes))
    said = ", ".join(f"{kinds.count(kind)} {kind}" for kind in get_args(Change))
    yield Section(
        "drift",
        "Since the earlier report",
        ("change", "unused", "was", "is", "owner", "backend", answer.noun),
        tuple(_change(change) for change in drift.changes),
        frozenset({1}),
        frozenset({0, 2, 3}),
        lead=f"{said}, {drift.rebuilt} rebuilt, {drift.same} the same: {signed_size(more)} unused "
        "in pulls of all",
    )
    yield Section(
        "drift-owners",
        "Since the earlier report, by owner",
        ("unused", "new", "gone", "worse", "better", "owner"),
        tuple(
            _row(
                signed_size(row.more),
                *map(str, (row.new, row.gone, row.worse, row.better)),
                owner_name(row.owner),
                owner=owner_name(row.owner),
            )
            for row in answer.owner_drift
        ),
        frozenset({0, 1, 2, 3, 4}),
    )
    yield sentences("drift-notes", "Differences that limit the comparison", drift.notes)


def _change(change: FleetChange) -> Row:
    more = bytes_more(change)

    def end(value: ChangeEnd | None) -> str:
        if value is None:
            return "-"
        broken = f", breaks on {listing(value.refused, 2)}" if value.refused else ""
        return f"{value.state}{broken}"

    return _row(
        change.change,
        signed_size(more) if more else "",
        end(change.before),
        end(change.after),
        owner_name(change.owner),
        change.backend,
        change.title,
        q=change.title,
    )


# Terminal: actions first, then the worst of everything


#: For about 60 lines in all.
_TABLE_LIMITS: Limits = {
    "missing": 2, "causes": 3, "nodes": 4, "reasons": 2, "worst": 3, "running": 2, "owners": 3,
    "vendors": 2, "undecided": 2, "left-out": 2, "drift": 2, "drift-owners": 0, "drift-notes": 1,
    "notes": 1,
}  # fmt: skip
#: Lines of one text there; what is to be done has more of them.
_LINES: Mapping[str, int] = {"causes": 2}


def render_table(report: FleetReport, *, width: int, color: bool, every: bool = False) -> str:
    """The answer as text, wrapped at `width` columns: about 60 lines, or all with `every`."""
    answer, paint, width = FleetAnswer(report), terminal.Painter(color), max(width, 60)
    lines = [paint(printable(report.subject), "bold")]
    shown = sections(answer, {} if every else _TABLE_LIMITS)
    lines += chain(*terminal.draw(shown, width, paint, None if every else _LINES))
    lines.append("")
    if any(section.more for section in shown):
        lines += terminal.wrapped(full_report_hint(report), width)
    lines.append(paint.state(answer.state, printable(answer.headline), "bold"))
    return "\n".join(lines) + "\n"


# Markdown: actions first, for comments and job summaries


#: For 60 lines at most.
_MARKDOWN_LIMITS: Limits = {
    "missing": 2, "causes": 3, "nodes": 3, "reasons": 0, "bytes": 4, "worst": 3, "running": 0,
    "owners": 3, "vendors": 0, "undecided": 2, "left-out": 1, "drift": 1, "drift-owners": 0,
    "drift-notes": 1, "notes": 1,
}  # fmt: skip
#: Characters of a text there.
_LENGTH = 300


def render_markdown(report: FleetReport, *, every: bool = False) -> str:
    """The answer as GitHub-flavored Markdown: at most 60 lines, or all with `every`."""
    return "\n".join(_lines(report, every)) + "\n"


def _lines(report: FleetReport, every: bool) -> Iterator[str]:
    answer = FleetAnswer(report)
    yield f"## buildmatrix: {plain(answer.headline)}"
    yield ""
    if answer.advice:
        yield f"**First:** {rich(answer.advice)}"
        yield ""
    shown = sections(answer, {} if every else _MARKDOWN_LIMITS)
    yield from markdown.draw(shown, None if every else _LENGTH)
    if any(section.more for section in shown):
        yield f"{plain(report.subject)}: {plain(full_report_hint(report))}."
