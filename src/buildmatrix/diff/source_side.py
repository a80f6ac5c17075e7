"""SOURCE → one side of a comparison: its facts, and what the rules say of them.

A side is an image (in an engine, saved, or that of a target that was built), a tree, a wheel, a
lock or what would be locked, or a saved report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from buildmatrix.catalogue.leftovers import apart
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.diff.model import Held, Side
from buildmatrix.diff.settings import Settings, with_facts
from buildmatrix.errors import UsageError
from buildmatrix.inventory.model import Inventory
from buildmatrix.locks.model import Lock
from buildmatrix.reports.diff.model import Kind
from buildmatrix.reports.run.model import Report, assemble, is_undecided
from buildmatrix.rules.engine import judge_image
from buildmatrix.rules.waivers import apply, check_rules
from buildmatrix.sources.kinds import is_declared, report_file
from buildmatrix.sources.known import known_of
from buildmatrix.sources.source import Source, parse
from buildmatrix.spec.bare import ANY, bare_spec, bare_target
from buildmatrix.spec.model import Spec, Target
from buildmatrix.why.graph_cache import kept

#: Keys of a target's side: without its layers, and with them.
KEPT, KEPT_LAYERS = "side", "side-layers"
_KINDS: Mapping[str, Kind] = {
    "dir": "tree", "wheel": "wheel", "docker": "image", "tar": "image", "oci": "image",
}  # fmt: skip
#: Labels of images that buildmatrix built (`render.dockerfile`).
_RUNTIME = "dev.buildmatrix.runtime"
_BASE = "org.opencontainers.image.base.name"


def sides_of(before: str, after: str, settings: Settings) -> tuple[Side, Side]:
    """Both sides. One that does not say what it is for is judged for the backend of the other."""
    first = side_of(before, settings)
    second = side_of(after, replace(settings, fallback=_only(first)))
    if first.findings is None and _only(second) is not None:
        first = side_of(before, replace(settings, fallback=_only(second)))
    return first, second


def _only(side: Side) -> str | None:
    return side.backends[0] if len(side.backends) == 1 else None


def side_of(text: str, settings: Settings) -> Side:
    """Read what `text` names, and judge it where a backend is known. Raises what reading raises."""
    if not text.strip():
        raise UsageError("SOURCE is empty; name an image, a folder, a wheel, a lock or a report")
    _check_backend(settings.backend, settings)
    report = report_file(text)
    if report is not None:
        from buildmatrix.diff.report_side import side_of_report

        return side_of_report(report, settings.globs, settings.backend)
    if _is_target(text, settings):
        return _target(text, settings)
    if is_declared(text):
        from buildmatrix.diff.lock_side import side_of_lock

        return side_of_lock(text, settings)
    return _tree(parse(text), settings)


def _check_backend(name: str | None, settings: Settings, whose: str = "") -> None:
    known = load(settings.data_files).backends
    if name is not None and name not in known:
        raise UsageError(
            f"{whose}there is no backend {name!r}; the catalogue knows {', '.join(sorted(known))}"
        )


def is_wheel(text: str) -> bool | None:
    """Whether SOURCE is one wheel, as far as its name tells; None for a report."""
    if report_file(text) is not None:
        return None
    return not is_declared(text) and (text.startswith("wheel:") or text.endswith(".whl"))


def _is_target(text: str, settings: Settings) -> bool:
    if text.startswith("target:"):
        return True
    if ":" in text or "/" in text or Path(text).exists():
        return False
    spec = settings.spec()
    return spec is not None and any(target.id == text for target in spec.targets)


# Trees


def _tree(source: Source, settings: Settings) -> Side:
    facts = settings.facts.get(str(source))
    if facts is None:
        facts = settings.facts[str(source)] = settings.machine.read(source)
    kind = _KINDS[source.kind]
    side = Side(str(source), kind, is_wheel=kind == "wheel", base=facts.labels.get(_BASE))
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
    return _with_wheel(side, Path(source.name)) if kind == "wheel" else side


def _with_wheel(side: Side, path: Path) -> Side:
    """`side`, which is one wheel, with what identifies its file."""
    from buildmatrix.store.facts import digest

    def of(held: Held) -> Held:
        size = path.stat().st_size
        return replace(held, download=size, wheel=path.name, sha256=digest(path))

    return replace(side, held=tuple(map(of, side.held)))


def _target(text: str, settings: Settings) -> Side:
    """The image of a target, as its last build left it; what it comes to is kept beside it."""
    spec = settings.spec()
    known = known_of(text, settings.machine, settings.spec)
    # `known_of` has refused what is no target.
    assert spec is not None
    target = next(one for one in spec.targets if one.id == text.removeprefix("target:"))
    if settings.backend is not None and settings.backend != target.backend:
        raise UsageError(f"{text} is a target for {target.backend}, not for {settings.backend}")

    def make() -> tuple[Side, tuple[Path, ...]]:
        facts = known.read()
        side = Side(f"target {target.id}", "image", base=target.base.final)
        made = _judged(side, facts.inventory, target, spec, facts.lock)
        return made, (*facts.files, *known.catalogue)

    if known.keep is None:
        return _settled(make()[0], spec, settings)
    side = kept(
        known.keep.store,
        KEPT_LAYERS if known.layers else KEPT,
        known.keep.files,
        make,
        Side,
        fits=lambda it: not known.layers or bool(it.layers),
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


def _settled(side: Side, spec: Spec, settings: Settings) -> Side:
    """`side` with what waivers accept today, and with whether anything stays open."""
    if side.findings is None:
        return replace(side, is_undecided=bool(side.unread))
    accepted = (*spec.waivers, *settings.waivers)
    check_rules(accepted)
    findings = tuple(apply(side.findings, accepted, settings.today))
    report = Report(side.source, findings=findings, unread=side.unread)
    return replace(side, findings=findings, is_undecided=is_undecided(report))
