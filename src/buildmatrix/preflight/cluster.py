"""Preflight on a cluster: manifests for its machines, and results from the logs of their pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

from buildmatrix import __version__
from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.base.progress import Silent
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.engines.model import Engine, ImageFacts
from buildmatrix.facts.files import write_changed
from buildmatrix.judge.judging import Judge
from buildmatrix.matrix.matrix import select
from buildmatrix.matrix.model import RUNGS, NodeClass, Rung, Spec, bare_spec, bare_target
from buildmatrix.preflight.baseline import Expectations, compare_rung, read_expectations
from buildmatrix.preflight.manifests import (
    CLUSTER_RUNGS,
    ManifestRun,
    Replay,
    Step,
    UnansweredError,
    format_manifest,
    plan_steps,
)
from buildmatrix.preflight.protocol import PodLog, make_missing_checks, read_checks, read_texts
from buildmatrix.preflight.run import RUNNERS, RungInputs, make_outcome, run_nothing
from buildmatrix.preflight.subject import Subject, make_reference_subject
from buildmatrix.reports.preflight import Check, Preflight, PreflightTarget, RungOutcome
from buildmatrix.reports.run import ReportTool
from buildmatrix.reports.saved import read

# Results from logs: all nodes of a class, rung by rung


def collect(
    logs: Sequence[PodLog],
    subject_of: Callable[[PodLog], Subject],
    digest: str | None,
    today: date,
    *,
    baseline: Path | None = None,
    reference: Path | None = None,
) -> Preflight:
    """Merge all pods to one preflight; `subject_of` returns the target of a pod.

    `digest` is that of the requested image. `baseline` and `reference` are files of earlier
    preflights. Raises `UsageError` for pods of another image, and files about something else.
    """
    _check_digests([log for log in logs if log.steps is not None], digest)
    groups: dict[tuple[str, str], list[PodLog]] = {}
    for log in logs:
        groups.setdefault((log.about.target, log.about.node_class), []).append(log)
    subjects = [subject_of(group[0]) for group in groups.values()]
    on = [(subject, name or None) for subject, (_, name) in zip(subjects, groups, strict=True)]
    expected = read_expectations(on, baseline, reference)
    targets = tuple(
        _merge_class(subject, group, today, own)
        for subject, group, own in zip(subjects, groups.values(), expected, strict=True)
    )
    catalogue = Judge(subjects[0].spec, "error", today, ()).catalogue_date
    return Preflight(ReportTool(version=__version__, catalogue=catalogue), targets)


def _check_digests(logs: Sequence[PodLog], digest: str | None) -> None:
    expected: dict[str, PodLog] = {}
    for log in logs:
        other = expected.setdefault(log.about.target, log)
        wanted, about = digest or other.about.digest, log.about
        if about.digest != wanted:
            raise UsageError(
                f"{log.source}: the pod {about.pod} ran {about.target} as {about.digest}, but "
                f"{wanted} was requested; results of different images are not one report"
            )


def _merge_class(
    subject: Subject, logs: Sequence[PodLog], today: date, expected: Expectations
) -> PreflightTarget:
    """Merge all nodes of one class, rung by rung."""
    first = logs[0]
    node = next(
        (item for item in subject.node_classes if item.name == first.about.node_class), None
    )
    judge = Judge(subject.spec, "error", today, ())
    climb = RungInputs(
        subject, judge, run_nothing, node, Silent(), today, expected=expected, in_pod=True
    )
    outcomes = [outcome for log in logs for outcome in _replay_log(climb, log)]
    outcomes.sort(key=lambda outcome: RUNGS.index(outcome.rung))
    return PreflightTarget(
        first.about.target or f"a pod of {first.source}",
        first.about.backend,
        tuple(_note_contradiction(outcome, outcomes) for outcome in outcomes),
        first.about.image or None,
        first.about.digest or None,
        first.about.node_class or None,
    )


def _note_contradiction(outcome: RungOutcome, all_: Sequence[RungOutcome]) -> RungOutcome:
    """Note the nodes of the class on which a failed rung passed."""
    if outcome.state != "failed":
        return outcome
    passed = {
        other.where for other in all_ if other.rung == outcome.rung and other.state == "passed"
    }
    nodes = sorted(passed - {outcome.where})
    said = [f"it passed on {', '.join(nodes[:8])}, of the same node class"] if nodes else []
    said += ["another pod on this node passed it"] if outcome.where in passed else []
    return replace(outcome, why="; ".join(filter(None, (outcome.why, *said))))


def _replay_log(climb: RungInputs, log: PodLog) -> Iterator[RungOutcome]:
    """Yield the outcomes of one pod."""
    if log.steps is None:
        why = f"{log.source}: the log of a pod begins in the middle; what it was about is lost"
        yield RungOutcome("import", "undecided", why=why, where=log.where)
        return
    planned = {rung for rung, _ in log.steps}
    stopped: RungOutcome | None = None
    level = log.about.level
    for rung in RUNGS[: RUNGS.index(level) + 1] if level in RUNGS else RUNGS:
        # Pods of a JobSet run only one rung, and none runs `static`.
        if rung == "static" or (rung not in planned and log.about.nodes > 1):
            continue
        if rung not in planned:
            why = "it runs with `preflight` on the machine itself, not in a pod"
            if rung in CLUSTER_RUNGS:
                why = "the manifest asked for none of its commands"
            outcome = RungOutcome(rung, "not-run", why=why, where=log.where)
        elif stopped is not None:
            why = f"the rung `{stopped.rung}` {stopped.state}"
            outcome = RungOutcome(rung, "not-run", why=why, where=log.where)
        else:
            outcome = _replay_rung(climb, log, rung)
        if outcome.state in ("failed", "undecided"):
            stopped = outcome
        yield outcome


def _replay_rung(climb: RungInputs, log: PodLog, rung: Rung) -> RungOutcome:
    try:
        run = Replay(rung, log.answers(rung))
        replayed, why = RUNNERS[rung](replace(climb, run=run, repeat=log.about.repeat))
    except UnansweredError as missing:
        if not missing.is_planned:
            why = "its commands are others than those of the manifest: write that again"
            return RungOutcome(rung, "undecided", why=why, where=log.where)
        replayed, why = _collect_lost_checks(missing, log), log.describe_loss()
    else:
        if climb.expected.baseline is not None:
            earlier = climb.expected.baseline
            replayed += compare_rung(rung, replayed, earlier, log.where, log.about.nodes)
    if log.missing:
        replayed += (
            Check(
                f"log of {log.about.pod}", "undecided", f"{log.missing} of its lines are missing"
            ),
        )
    outcome = make_outcome(climb, rung, replayed, why)
    return replace(outcome, where=log.where, nodes=log.about.nodes)


def _collect_lost_checks(lost: UnansweredError, log: PodLog) -> tuple[Check, ...]:
    """Return a lost pod's checks; announced but missing ones are undecided."""
    seen = read_checks(lost.output, lost.mark) if lost.mark else ()
    announced = [name for check in seen for name in read_texts(check, "names")]
    rest = make_missing_checks(announced, seen, "the pod was lost before this rung")
    return (*seen, *rest, Check(f"pod {log.about.pod}", "undecided", log.describe_loss()))


# Manifests


def select_subjects(
    pattern: str, spec: Spec, engine: Engine, image: str | None, report: Path | None
) -> tuple[Subject, ...]:
    """Return the targets that a pattern matches, each with its image in a registry.

    The image is `image`, or the one pushed according to a report. Raises `UsageError`.
    """
    targets = select(spec, [pattern], None)
    if image is not None and len(targets) != 1:
        raise UsageError(f"--image is one image, and {pattern} matches {len(targets)} targets")
    staged = {item.id: item.staged for item in read(report).targets} if report is not None else {}
    subjects = []
    for target in targets:
        pushed = staged.get(target.id)
        reference = image or (f"{pushed.repository}@{pushed.digest}" if pushed else None)
        if reference is None:
            raise UsageError(
                f"{target.id}: a cluster needs its image in a registry, by digest; give --image "
                "HOST/NAME@sha256:..., or --report with the report of `build --stage`"
            )
        subjects.append(make_reference_subject(reference, target.backend, spec, engine, target))
    return tuple(subjects)


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
            planned = _plan_steps(subject, level, node, today, repeat)
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
) -> tuple[Step, ...]:
    judge = Judge(subject.spec, "error", today, ())
    climb = RungInputs(subject, judge, run_nothing, node, Silent(), today, repeat, in_pod=True)

    def plan(rung: Rung) -> tuple[Step, ...]:
        return plan_steps(rung, lambda run: RUNNERS[rung](replace(climb, run=run)))

    wanted = RUNGS[: RUNGS.index(level) + 1]
    return tuple(step for rung in wanted if rung in CLUSTER_RUNGS for step in plan(rung))


def _count_resource(resource: str, node: NodeClass, catalogue: Catalogue) -> int:
    """Return a pod's number of a resource: all devices of a machine, else one."""
    counted = any(
        owned.entry.field == "count" and fnmatchcase(resource, name)
        for owned in catalogue.node_resources
        for name in owned.entry.names
    )
    return node.count or 1 if counted else 1
