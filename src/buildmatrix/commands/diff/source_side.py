"""SOURCE → one side of a comparison: its facts, and what the rules say of them.

A side is an image (in an engine, saved, or that of a target that was built), a tree, a wheel, a
lock or what would be locked, or a saved report.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from buildmatrix.catalogue.leftovers import apart
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.commands.diff.model import HeldDistribution, Side
from buildmatrix.commands.diff.settings import DiffSettings, with_facts
from buildmatrix.commands.why.graph_cache import kept
from buildmatrix.errors import UsageError
from buildmatrix.inventory.model import Inventory
from buildmatrix.locks.model import Lock
from buildmatrix.reports.run.model import Report, assemble, is_undecided
from buildmatrix.rules.engine import judge_image
from buildmatrix.rules.severities import check_severities, graded
from buildmatrix.rules.waivers import apply, check_rules
from buildmatrix.sources.model import Declared, Installed, Source
from buildmatrix.sources.report import SavedReport
from buildmatrix.spec.bare import ANY, bare_spec, bare_target
from buildmatrix.spec.model import Spec, Target

#: Keys of a target's side: without its layers, and with them.
KEPT, KEPT_LAYERS = "side", "side-layers"
#: Labels of images that buildmatrix built (`render.dockerfile`).
_RUNTIME = "dev.buildmatrix.runtime"
_BASE = "org.opencontainers.image.base.name"


def sides_of(before: Source, after: Source, settings: DiffSettings) -> tuple[Side, Side]:
    """Both sides. One that does not say what it is for is judged for the backend of the other."""
    _check_backend(settings.backend, settings)
    first = side_of(before, settings)
    second = side_of(after, replace(settings, fallback=_only(first)))
    if first.findings is None and _only(second) is not None:
        first = side_of(before, replace(settings, fallback=_only(second)))
    return first, second


def _only(side: Side) -> str | None:
    return side.backends[0] if len(side.backends) == 1 else None


def side_of(source: Source, settings: DiffSettings) -> Side:
    """Read a source, and judge it where a backend is known. Raises what reading raises."""
    if isinstance(source, SavedReport):
        from buildmatrix.commands.diff.report_side import side_of_report

        return side_of_report(source.path, settings.globs, settings.backend)
    if isinstance(source, Declared):
        from buildmatrix.commands.diff.lock_side import side_of_lock

        return side_of_lock(source, settings)
    target = source.target()
    if target is not None:
        return _target(source, *target, settings)
    assert isinstance(source, Installed)
    return _tree(source, settings)


def _check_backend(name: str | None, settings: DiffSettings, prefix: str = "") -> None:
    backend_entries = load(settings.data_files).backends
    if name is not None and name not in backend_entries:
        raise UsageError(
            f"{prefix}there is no backend {name!r}; the catalogue knows "
            f"{', '.join(sorted(backend_entries))}"
        )


# Trees


def _tree(source: Installed, settings: DiffSettings) -> Side:
    facts = settings.facts.get(facts_key := str(source))
    if facts is None:
        facts = settings.facts[facts_key] = source.facts(settings.options)
    is_wheel = source.form == "wheel"
    side = Side(facts.label, source.form, is_wheel=is_wheel, base=facts.labels.get(_BASE))
    backend = settings.backend or facts.backend or settings.fallback
    _check_backend(backend, settings, f"{source}: ")
    runtime = settings.runtime or facts.labels.get(_RUNTIME, ANY)
    target = None
    if backend is not None:
        target = bare_target(str(source), backend, runtime, base=source.name)
    spec = replace(
        bare_spec(), catalogue=tuple(str(path.absolute()) for path in settings.data_files)
    )
    side = _settled(_judged(side, facts.inventory, target, spec, None), spec, settings)
    return side if source.single_file is None else _with_wheel(side, source.single_file)


def _with_wheel(side: Side, path: Path) -> Side:
    """`side`, which is one wheel, with what identifies its file."""
    from buildmatrix.store.facts import file_digest

    def of(held: HeldDistribution) -> HeldDistribution:
        size = path.stat().st_size
        return replace(held, download=size, wheel=path.name, sha256=file_digest(path))

    return replace(side, held=tuple(map(of, side.held)))


def _target(source: Source, target: Target, spec: Spec, settings: DiffSettings) -> Side:
    """The image of a target, as its last build left it; what it comes to is kept beside it."""
    if settings.backend is not None and settings.backend != target.backend:
        raise UsageError(f"{source} is a target for {target.backend}, not for {settings.backend}")
    options = settings.options

    def make() -> tuple[Side, tuple[Path, ...]]:
        facts = source.facts(options)
        side = Side(facts.label, "image", base=target.base.final)
        made = _judged(side, facts.inventory, target, spec, facts.lock)
        return made, (*facts.files, *facts.catalogue)

    beside = source.kept_beside(options)
    if beside is None:
        return _settled(make()[0], spec, settings)
    side = kept(
        beside.store,
        KEPT_LAYERS if options.layers else KEPT,
        beside.files,
        make,
        Side,
        fits=lambda side: not options.layers or bool(side.layers),
    )
    return _settled(side, spec, settings)


def _judged(
    side: Side, inventory: Inventory, target: Target | None, spec: Spec, lock: Lock | None
) -> Side:
    """`side` with the facts of `inventory`, and with what rules say where there is a target."""
    catalogue = load(spec.catalogue_files)
    installed = apart(inventory, catalogue).installed
    seen = evidence(installed, catalogue)
    side = with_facts(side, installed, seen)
    if target is None:
        return side
    judgement = judge_image(target, inventory, seen, lock, catalogue, spec.policy)
    report = assemble(
        side.source,
        str(catalogue.date),
        findings=judgement.findings,
        verdicts=judgement.verdicts,
        inventories=[inventory],
    )
    return replace(
        side,
        targets={target.id: target.backend},
        findings=report.findings,
        verdicts=report.distributions,
        unread=report.unread,
    )


def _settled(side: Side, spec: Spec, settings: DiffSettings) -> Side:
    """`side` with what waivers accept today, and with whether anything stays open."""
    if side.findings is None:
        return replace(side, is_undecided=bool(side.unread))
    accepted = (*spec.waivers, *settings.waivers)
    check_rules(accepted)
    check_severities(spec.policy)
    counted = graded(side.findings, spec.policy)
    findings = tuple(apply(counted, accepted, settings.today))
    report = Report(side.source, findings=findings, unread=side.unread)
    return replace(side, findings=findings, is_undecided=is_undecided(report))
