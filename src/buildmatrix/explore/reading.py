"""Facts of a SOURCE to the data of `explore`, judged for a backend if one is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from buildmatrix.base.text import printable, shown
from buildmatrix.catalogue.leftovers import split_leftovers
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.lookup import unknown_backend
from buildmatrix.commands.options import ScanOptions
from buildmatrix.commands.scan import scan
from buildmatrix.commands.why.run import make_graph
from buildmatrix.explore.model import Exploration
from buildmatrix.explore.views import collect_files, make_views
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.locks import wheels
from buildmatrix.judge.model import Finding, Verdict
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Spec, Target, bare_spec, bare_target
from buildmatrix.sources.model import Facts

Judgement = tuple[tuple[Finding, ...], tuple[Verdict, ...]]


def make_exploration(
    facts: Facts,
    *,
    backend: str | None = None,
    runtime: str = "any",
    today: date,
    declared: tuple[Spec, Target] | None = None,
    of_wheels: bool = False,
    data_files: Sequence[Path] = (),
) -> Exploration:
    """Return the data that the screen shows of a source.

    Without `backend`, that of the source is used; if it has none, nothing counts as foreign.
    `declared` is a target of a specification to judge it as instead. `of_wheels`: the facts are
    those of wheels in a lock, and not of an image. Raises `UsageError` for a backend that the
    catalogue does not know.
    """
    if declared is None and facts.target is not None and backend is None:
        declared = facts.target[1], facts.target[0]
    chosen = declared[1].backend if declared is not None else backend or facts.backend
    files = tuple(data_files) or facts.catalogue
    if chosen is not None and declared is None:
        bare = bare_target(facts.label, chosen, runtime)
        paths = tuple(str(path.absolute()) for path in files)
        declared = replace(bare_spec(bare), catalogue=paths), bare
    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    if declared is not None and of_wheels and facts.lock is not None:
        findings, verdicts = _judge_wheels(facts.inventory, facts.lock, *declared, today)
    elif declared is not None:
        options = ScanOptions(facts.label, backend=chosen, fail_on="never")
        report = scan(facts, options, today, declared=declared)
        findings, verdicts = report.findings, report.distributions
    catalogue = load(facts.catalogue or files)
    parted = split_leftovers(facts.inventory, catalogue)
    source = make_graph(facts)
    # Both are computed on first use, which would delay the first file under the cursor.
    _ = source.graph.out, source.graph.into
    known = collect_files(parted, source.evidence, verdicts, chosen, catalogue)
    views = make_views(parted, known, source.graph)
    return Exploration(
        label=printable(shown(facts.label)),
        backend=chosen,
        size=sum(item.size for item in views["layers"]) or facts.inventory.stats.bytes_total,
        wasted=sum(item.wasted for item in views["layers"] or views["distributions"]),
        views=views,
        vendors=tuple(
            dict.fromkeys(vendor for item in views["vendors"] for vendor in item.vendors)
        ),
        inventory=facts.inventory,
        source=source,
        files=known,
        findings=findings,
    )


def _judge_wheels(
    inventory: Inventory, lock: Lock, spec: Spec, target: Target, today: date
) -> Judgement:
    """Return an audit's findings and verdicts for the same wheels, as far as they were read."""
    judge = Judge(spec, "never", today)
    if target.backend not in judge.backends:
        raise unknown_backend(target.backend, judge.backends)
    items = judge.evidence(inventory)
    return judge.wheels(
        wheels(target, inventory, items, lock, judge.catalogue, judge.policy, downloads={})
    )
