"""`scan`: judge a SOURCE, with or without a specification."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from pathlib import Path

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.catalogue.lookup import unknown_backend
from buildmatrix.commands.options import ScanOptions
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.model import GATES, TargetResult
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Spec, Target, Waiver, bare_spec, bare_target
from buildmatrix.reports.run import Report, assemble
from buildmatrix.sources.model import Facts


def scan(
    facts: Facts,
    options: ScanOptions,
    today: date,
    waivers: Sequence[Waiver] = (),
    baseline: Collection[str] = (),
    data_files: Sequence[Path] = (),
    declared: tuple[Spec, Target] | None = None,
    lock: Lock | None = None,
) -> Report:
    """Judge the facts of a source against a backend.

    `waivers`, and the fingerprints of a `baseline`, accept findings. `data_files` add to the
    catalogue. `declared` is a target of a specification, as which it is judged instead, with the
    node classes, the policy and the waivers there. Raises `UsageError` when nothing says which
    backend is meant. `lock`: the lock of a target that was built.
    """
    chosen = declared[1].backend if declared is not None else options.backend or facts.backend
    if chosen is None:
        raise UsageError(f"{facts.label} does not say which backend it is for; give --backend")
    if declared is not None:
        spec, target = declared
        spec = replace(spec, waivers=(*spec.waivers, *waivers))
    else:
        target = bare_target(facts.label, chosen, options.runtime)
        spec = replace(
            bare_spec(target),
            waivers=tuple(waivers),
            catalogue=tuple(str(path.absolute()) for path in data_files),
        )
    judge = Judge(spec, options.fail_on, today, baseline)
    if chosen not in judge.backends:
        raise unknown_backend(chosen, judge.backends)
    judgement = judge.image(target, facts.inventory, lock)
    findings = judgement.findings
    result = TargetResult(
        id=target.id,
        backend=chosen,
        gates={gate: judge.gate(findings) if gate == "scan" else "not-run" for gate in GATES},
        image=facts.image,
        size=facts.inventory.stats.bytes_total,
        seconds=facts.inventory.stats.seconds,
        nodes=judgement.fits or None,
        composition=judgement.composition,
    )
    return assemble(
        facts.label,
        judge.catalogue_date,
        targets=[result],
        findings=(*findings, *judge.stale_waivers(findings, ())),
        verdicts=[replace(verdict, targets=(target.id,)) for verdict in judgement.verdicts],
        inventories=[facts.inventory],
    )
