"""The report as one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from buildmatrix.base.text import count
from buildmatrix.catalogue.model import Evidence
from buildmatrix.judge.acceptance import fails, is_from_baseline
from buildmatrix.judge.composition import Composition
from buildmatrix.judge.model import GATES, Advisory, Finding, GateState
from buildmatrix.reports import charts, groups, page, run_revision, summary
from buildmatrix.reports.node_map import architecture_grids, node_map
from buildmatrix.reports.page import vendor_class, vendor_name
from buildmatrix.reports.run import Report, is_undecided, state_of, steps, targets_in

#: Sentences of one list.
_MOST = 120


class LinkList(Struct, frozen=True):
    """Sentences about targets whose distributions link and require the same."""

    targets: tuple[str, ...]
    sentences: tuple[str, ...]
    #: Sentences that are not listed.
    left_out: int


def link_list(targets: Sequence[str], composition: Composition) -> LinkList | None:
    """Return the links and requirements of one composition; None if it has none.

    Links come first, and the heaviest distributions first.
    """
    parts = {part.name: part for part in composition.distributions if part.name}
    arrows: dict[tuple[str, str], bool] = {}
    for name, part in parts.items():
        for needed in part.links:
            arrows[name, needed] = True
        for asker in part.required_by:
            arrows.setdefault((asker, name), False)
    kept = [ends for ends in arrows if ends[0] != ends[1] and parts.keys() >= set(ends)]
    kept.sort(key=lambda ends: (not arrows[ends], -parts[ends[1]].size))
    if not kept:
        return None
    sentences = tuple(
        f"{source} {'links libraries of' if arrows[source, end] else 'requires'} {end}"
        for source, end in kept[:_MOST]
    )
    return LinkList(tuple(targets), sentences, len(kept) - len(sentences))


#: What a finding is filtered by -> the filter's label: open ones by severity, then accepted ones.
_KINDS = {"error": "errors", "warning": "warnings", "note": "notes", "accepted": "accepted"}
#: Causes on the first screen.
_CAUSES = 3
#: Targets that are named there.
_NAMED = 3
#: Findings from which on a page has fewer elements for each: browsers have to hold all of them.
_LONG = 500


def render(report: Report) -> str:
    """The report as one document; the same report gives the same bytes."""
    finding_groups = groups.group_findings(report.findings, report.ids)
    shown_bars = charts.bars(report.targets)
    every_step = steps(report.targets)
    ran = tuple(
        step
        for step in every_step
        if any(
            state_of(target, step) != "not-run" or (step == "smoke" and target.smoke_not_run)
            for target in report.targets
        )
    )
    state, verdict = _outcome(report)
    offered = summary.cures(report.findings, report.ids)
    left = summary.select_unaccepted(report)
    return page.render(
        "page/report.html.j2",
        styles=["page/report.css"],
        scripts=["page/report.js"],
        filters={
            "percent": charts.percent,
            "part_name": charts.part_name,
            "vendors_text": charts.vendors_text,
        },
        report=report,
        state=state,
        headline=verdict,
        advice=summary.headline(offered, len(left)),
        gates=ran,
        ladders=summary.ladders(report),
        without_device=summary.without_device(report),
        gates_not_run=[step for step in every_step if step not in ran],
        state_of=state_of,
        bars=shown_bars,
        wasted=sum(bar.wasted for bar in shown_bars.values()),
        at_least=any(bar.at_least for bar in shown_bars.values()),
        installed=sum(bar.size for bar in shown_bars.values()),
        vendors=_vendors(report),
        treemaps=_treemaps(report),
        strips=_strips(report),
        grids=architecture_grids(report.distributions),
        links=_links(report),
        revision=run_revision,
        target_table=summary.target_table,
        unread_section=summary.unread_section,
        gone=groups.group_findings(report.gone or (), report.ids),
        in_baseline=sum(map(is_from_baseline, report.findings)),
        causes=groups.causes(report, finding_groups)[:_CAUSES],
        open=len(left),
        is_long=len(report.findings) > _LONG,
        kinds=_KINDS,
        kind=_kind,
        counts={
            kind: sum(_kind(finding) == kind for finding in report.findings) for kind in _KINDS
        },
        totals=_totals(report),
        sections=summary.group_by_targets(report, finding_groups),
        ids=report.ids,
        audited=report.is_audit,
        node_map=node_map(report.targets),
        named=groups.name_targets,
        briefly=_briefly(report),
        whereabouts=groups.whereabouts(report),
        patches=_patches,
        evidence=_evidence,
        advisories=_advisories,
        distributions=[verdict for verdict in report.distributions if verdict.verdict != "ok"],
        ok=sum(verdict.verdict == "ok" for verdict in report.distributions),
        rules=sorted({(finding.rule, finding.name) for finding in report.findings}),
        finding_vendors=sorted({finding.vendor for finding in report.findings if finding.vendor}),
        vendor_name=vendor_name,
    )


def _briefly(report: Report) -> Callable[[Sequence[str]], str]:
    """A function that names few targets, and says of many on which backends they are."""
    backends = {target.id: target.backend for target in report.targets}

    def text(targets: Sequence[str]) -> str:
        if len(targets) <= _NAMED:
            return groups.name_targets(targets, list(backends)) or "this run"
        about = dict.fromkeys(backends[id] for id in targets if id in backends)
        others = [id for id, backend in backends.items() if backend in about and id not in targets]
        number = count(len(targets), "target") if others else f"all {len(targets)} targets"
        return f"{number} for {groups.join_names(list(about))}" if about else number

    return text


def _kind(finding: Finding) -> str:
    return finding.severity if finding.waived is None else "accepted"


def _outcome(report: Report) -> tuple[GateState, str]:
    """State of the whole run, in a word and in a headline."""
    errors = sum(map(fails, summary.select_unaccepted(report)))
    bad = targets_in(report.targets, "failed")
    unknown = targets_in(report.targets, "undecided")
    every = len(report.targets)
    still = count(errors, "open error")
    if bad or (errors and not every):
        which = f": all {every} targets" if bad == every else f": {bad} of {every} targets"
        return "failed", f"Failed{which if every > 1 else ''}"
    if is_undecided(report):
        which = f": {unknown} of {count(every, 'target')}" if unknown and every > 1 else ""
        return "undecided", f"Undecided{which}{f', {still}' if errors else ''}"
    if errors:
        # Gates hold what `--fail-on` let through.
        return "undecided", f"No gate failed, {still}"
    # Number of targets on which gates did not run -> these gates.
    unrun: dict[int, list[str]] = {}
    for gate in GATES:
        number = sum(target.gates[gate] == "not-run" for target in report.targets)
        unrun.setdefault(number, []).append(gate)
    ran = unrun.pop(0, [])
    if unrun:
        text = f"{groups.join_names(ran)} passed" if ran else "No gate failed"
        for number, gates in unrun.items():
            which = f" on {number} of {every} targets" if number < every else ""
            text += f"; {groups.join_names(gates)} did not run{which}"
        return "not-run", text[0].upper() + text[1:]
    return "passed", "Passed" if every < 2 else f"Passed: all {every} targets"


def _vendors(report: Report) -> Sequence[tuple[str, str]]:
    """Classes and names of the vendors that have bytes, the largest first, what has none before.

    Those of one color share an entry.
    """
    sizes: dict[str, int] = {}
    for target in report.targets:
        for share in charts.vendor_bytes(target):
            sizes[share.vendor] = sizes.get(share.vendor, 0) + share.size
    names: dict[str, list[str]] = {}
    for vendor in sorted(sizes, key=lambda vendor: (vendor != "", -sizes[vendor], vendor)):
        names.setdefault(vendor_class(vendor), []).append(vendor_name(vendor))
    return [(style, ", ".join(of_style)) for style, of_style in names.items()]


def _alike(
    report: Report, part: Callable[[Composition], object]
) -> list[tuple[list[str], Composition]]:
    """Targets whose compositions have the same `part`, and one of these compositions."""
    same: dict[object, tuple[list[str], Composition]] = {}
    for target in report.targets:
        if target.composition is not None:
            key = part(target.composition)
            same.setdefault(key, ([], target.composition))[0].append(target.id)
    return list(same.values())


def _treemaps(report: Report) -> Sequence[charts.Treemap]:
    """A picture for each composition; what wastes most first."""
    alike = _alike(report, lambda held: (held.distributions, held.system))
    maps = [charts.treemap(targets, held) for targets, held in alike if held.distributions]
    return sorted(maps, key=lambda item: -item.wasted)


def _strips(report: Report) -> Sequence[charts.LayerStrip]:
    alike = _alike(report, lambda held: held.layers)
    return [charts.strip(targets, held.layers) for targets, held in alike if held.layers]


def _links(report: Report) -> Sequence[LinkList]:
    """Return a list for each set of links, which targets of several backends share."""

    def ends(held: Composition) -> object:
        parts = held.distributions
        return tuple((part.name, part.version, part.links, part.required_by) for part in parts)

    made = [link_list(targets, held) for targets, held in _alike(report, ends)]
    return [links for links in made if links is not None]


def _patches(group: groups.FindingGroup) -> Iterable[str]:
    """Yield the texts to write, each once."""
    fixes = (finding.offered_fix for finding in group.findings)
    return dict.fromkeys(fix.patch for fix in fixes if fix and fix.patch)


def _evidence(group: groups.FindingGroup) -> Sequence[Evidence]:
    """Return the evidence of findings of several targets, each piece once."""
    return list(dict.fromkeys(item for finding in group.findings for item in finding.evidence))


def _advisories(group: groups.FindingGroup) -> Sequence[Advisory]:
    return list(dict.fromkeys(item for finding in group.findings for item in finding.advisories))


def _totals(report: Report) -> str:
    """One sentence about the whole."""
    parts = []
    if report.targets:
        bad = targets_in(report.targets, "failed")
        unknown = targets_in(report.targets, "undecided")
        parts.append(f"{count(len(report.targets), 'target')}, {bad} failed")
        if unknown:
            parts.append(f"{unknown} undecided")
    in_baseline = sum(is_from_baseline(finding) for finding in report.findings)
    if in_baseline:
        parts.append(f"{count(in_baseline, 'finding')} of the baseline")
    if report.unread:
        parts.append(f"{len(report.unread)} not read")
    return ", ".join(parts)
