"""`scan`: judge what lies in a source that no specification describes."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from buildmatrix.errors import UsageError
from buildmatrix.pipeline.judge import Judge
from buildmatrix.pipeline.source import Facts, Source
from buildmatrix.reports.model import FailOn, Report, assemble
from buildmatrix.rules.model import TargetResult
from buildmatrix.spec.model import Base, Policy, Spec, Target, User


def scan(
    source: Source,
    facts: Facts,
    backend: str | None,
    runtime: str,
    fail_on: FailOn,
    today: date,
) -> Report:
    """Judge the facts of a source against a backend.

    `backend` None means: the one that the image says it is for. `runtime` is `any` where it is not
    known. Raises `UsageError` when nothing says which backend is meant.
    """
    chosen = backend or facts.backend
    if chosen is None:
        raise UsageError(f"{source} does not say which backend it is for; give --backend")
    target = _target(source, chosen, runtime)
    judge = Judge(_spec(target), fail_on, today)
    if chosen not in judge.backends:
        known = ", ".join(sorted(judge.backends))
        raise UsageError(f"there is no backend {chosen!r}; the catalogue knows {known}")
    findings, verdicts = judge.image(target, facts.inventory, None)
    result = TargetResult(
        id=target.id,
        backend=chosen,
        gates={
            "lock": "not-run",
            "build": "not-run",
            "scan": judge.gate(findings),
            "smoke": "not-run",
        },
        image=source.name if source.kind == "docker" else None,
        size=facts.inventory.stats.bytes_total,
        seconds=facts.inventory.stats.seconds,
    )
    return assemble(
        str(source),
        judge.catalogue_date,
        targets=[result],
        findings=findings,
        verdicts=verdicts,
        inventories=[facts.inventory],
    )


def _target(source: Source, backend: str, runtime: str) -> Target:
    """A target that asks for nothing but its backend."""
    return Target(
        id=str(source),
        project="",
        backend=backend,
        runtime=runtime,
        runtime_values={},
        python="",
        variant="",
        platform="linux/amd64",
        base=Base(source.name, source.name),
        requirements=(),
        extras=(),
        pyproject=None,
        replace={},
        drop=(),
        no_binary=(),
        index={},
        torch=None,
        archs=(),
        system_packages=(),
        env={},
        labels={},
        template="",
        copy=(),
        command=(),
        user=User(),
        image="",
        tags=(),
        lock="",
        smoke=(),
    )


def _spec(target: Target) -> Spec:
    return Spec(
        path=Path("buildmatrix.toml"),
        project="",
        version="",
        source=None,
        targets=(target,),
        excluded=(),
        subsets={},
        node_classes=(),
        policy=Policy(),
        waivers=(),
    )
