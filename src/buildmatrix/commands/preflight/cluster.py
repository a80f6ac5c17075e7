"""Preflight on a cluster: images, machines, and the commands of their rungs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.commands.preflight.logs import PodLog
from buildmatrix.commands.preflight.manifests import ManifestRun, format_manifest
from buildmatrix.commands.preflight.plan import CLUSTER_RUNGS, Step, plan_steps
from buildmatrix.commands.preflight.run import RUNNERS, RungInputs, Runner
from buildmatrix.commands.preflight.subject import Subject, make_reference_subject
from buildmatrix.engines import model as engines
from buildmatrix.engines.model import Engine, ImageFacts, RunResult
from buildmatrix.errors import UndecidedError, UsageError
from buildmatrix.files import write_changed
from buildmatrix.judge import Judge
from buildmatrix.progress import Silent
from buildmatrix.reports.run.saved import read
from buildmatrix.rules.rungs import RUNGS, Rung
from buildmatrix.spec.bare import bare_spec, bare_target
from buildmatrix.spec.model import NodeClass, Spec, Target
from buildmatrix.spec.points import select


def select_subjects(
    pattern: str, spec: Spec, engine: Engine, image: str | None, report: Path | None
) -> tuple[Subject, ...]:
    """Return the targets that a pattern matches, each with its image in a registry.

    The image is `image`, or the one pushed according to a report. Raises `UsageError`.
    """
    targets = select(spec, [pattern], None)
    if image is not None and len(targets) != 1:
        raise UsageError(f"--image is one image, and {pattern} matches {len(targets)} targets")
    pushed = _read_pushed(report) if report is not None else {}
    return tuple(
        make_reference_subject(
            _find_reference(target, image, pushed), target.backend, spec, engine, target
        )
        for target in targets
    )


def find_subject(spec: Spec | None, engine: Engine, log: PodLog) -> Subject:
    """Return the subject of a pod: a target of the specification, or an image by itself."""
    targets = spec.targets if spec is not None else ()
    target = next((target for target in targets if target.id == log.about.target), None)
    try:
        return make_reference_subject(log.about.image, log.about.backend, spec, engine, target)
    except (UndecidedError, UsageError):
        # An invalid image name from a hostile log, or none if its beginning is lost.
        bare = bare_target(log.about.target or "unknown", log.about.backend or "cpu")
        return Subject(
            bare, spec or bare_spec(bare), engine, log.about.image, ImageFacts("", {}, {}, 0, "")
        )


def _find_reference(target: Target, image: str | None, pushed: Mapping[str, str]) -> str:
    reference = image or pushed.get(target.id)
    if reference is None:
        raise UsageError(
            f"{target.id}: a cluster needs its image in a registry, by digest; give --image "
            "HOST/NAME@sha256:..., or --report with the report of `build --stage`"
        )
    return reference


def _read_pushed(path: Path) -> dict[str, str]:
    """Map targets to their images in a registry."""
    return {
        target.id: f"{target.staged.repository}@{target.staged.digest}"
        for target in read(path).targets
        if target.staged is not None
    }


def write_manifests(
    subjects: Sequence[Subject],
    level: Rung,
    node_class: str | None,
    nodes: int,
    folder: Path,
    today: date,
    repeat: int = 5,
) -> tuple[Path, ...]:
    """Write a file for each image and node class; return their paths. Raises `UsageError`."""
    texts: dict[Path, str] = {}
    for subject in subjects:
        classes = [n for n in subject.node_classes if node_class in (None, n.name)]
        if not classes:
            raise UsageError(
                f"{subject.target.id} runs on no node class; describe its machines in "
                "[node-class.NAME], or by `buildmatrix node-classes import`"
            )
        catalogue = load(subject.spec.catalogue_files)
        for node in classes:
            planned = tuple(_plan_steps(subject, level, node, today, repeat))
            if not planned:
                raise UsageError(f"no rung up to `{level}` runs on a cluster")
            run = ManifestRun(
                subject.target,
                subject.reference,
                node,
                level,
                planned,
                {name: _count_resource(name, node, catalogue) for name in node.resources},
                nodes,
                repeat,
            )
            texts[folder / run.file] = format_manifest(run)
    for path, content in texts.items():
        write_changed(path, content.encode())
    return tuple(texts)


def _plan_steps(
    subject: Subject, level: Rung, node: NodeClass, today: date, repeat: int
) -> Iterator[Step]:
    judge = Judge(subject.spec, "error", today, ())
    climb = RungInputs(
        subject,
        judge,
        lambda *_: RunResult(0, "", timed_out=False),
        node,
        Silent(),
        today,
        repeat,
        in_pod=True,
    )
    for rung in RUNGS[: RUNGS.index(level) + 1]:
        if rung in CLUSTER_RUNGS:
            yield from plan_steps(rung, partial(_call_runner, climb, RUNNERS[rung]))


def _call_runner(climb: RungInputs, runner: Runner, run: engines.Run) -> object:
    return runner(replace(climb, run=run))


def _count_resource(resource: str, node: NodeClass, catalogue: Catalogue) -> int:
    """Return a pod's number of a resource: all devices of a machine, else one."""
    counted = any(
        owned.entry.field == "count" and fnmatchcase(resource, name)
        for owned in catalogue.node_resources
        for name in owned.entry.names
    )
    return node.count or 1 if counted else 1
