"""A point of the matrix, with its settings → a target with every value filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from buildmatrix.matrix import kinds
from buildmatrix.matrix.document import Kind, Problems
from buildmatrix.matrix.keys import CheckWaiverTable, SmokeTable, SpecFile
from buildmatrix.matrix.keys_settings import BackendTable, BaseTable, OverrideTable, TargetSettings
from buildmatrix.matrix.matrix import (
    Matrix,
    Point,
    check_when,
    choose,
    meets_conditions,
    runtimes_of,
)
from buildmatrix.matrix.model import (
    LOCK_HEADER,
    TAKEN_LOCKS,
    Base,
    CheckWaiver,
    NodeClass,
    Smoke,
    Target,
    User,
    is_conda_lock,
    is_pixi_lock,
    is_pylock,
)
from buildmatrix.matrix.settings import (
    Filler,
    all_settings,
    build,
    check_clashes,
    check_exists,
    check_override,
    check_values,
    override,
    plain,
    sound,
    specialize,
    tidy,
)
from buildmatrix.matrix.shapes import SourceText

SelectingT = TypeVar("SelectingT", OverrideTable, SmokeTable, CheckWaiverTable)


class TargetContext(Struct, frozen=True):
    """State that all targets of a file share."""

    file: SpecFile
    path: Path
    matrix: Matrix
    node_classes: tuple[NodeClass, ...]
    #: The current commit; see `settings.Filler`.
    commit: Callable[[], str]
    problems: Problems

    @property
    def root(self) -> Path:
        """Folder of the specification."""
        return self.path.parent


def build_targets(context: TargetContext) -> tuple[Target, ...]:
    """Return all targets, in matrix order."""
    file, matrix, problems = context.file, context.matrix, context.problems
    overrides = _select(file.override, context)
    smokes = _select(file.smoke, context)
    waivers = _select(file.waive_check, context)
    aliases = _aliases(context)
    for over in file.override:
        check_override(over, problems)
    for layer in all_settings(file):
        check_values(layer, problems)
        for choice in _choices(layer):
            if choice.when is not None:
                check_when(choice.when, matrix.points, problems)
    targets = []
    for point in matrix.points:
        settings: TargetSettings = specialize(file.defaults, file.backend[point.backend])
        if variant := file.variant.get(point.variant):
            settings = specialize(settings, variant)
        for over, ids in overrides:
            if point.id in ids:
                settings = override(settings, over)
        targets.append(
            _target(
                context,
                point,
                settings,
                [smoke for smoke, ids in smokes if point.id in ids],
                [waive for waive, ids in waivers if point.id in ids],
                aliases.get(point.id, []),
            )
        )
    check_clashes(targets, context.path, file, problems)
    return tuple(targets)


def _select(
    entries: Iterable[SelectingT], context: TargetContext
) -> list[tuple[SelectingT, set[str]]]:
    """Return each entry with the identifiers that it selects."""
    ids, gone = context.matrix.ids, context.matrix.gone
    return [(item, set(choose(item.select, ids, gone, context.problems))) for item in entries]


def _aliases(context: TargetContext) -> dict[str, list[SourceText]]:
    """Return identifier → the additional tags of its target."""
    matrix, problems = context.matrix, context.problems
    aliases: dict[str, list[SourceText]] = {}
    for tag, target in context.file.tags.alias.items():
        ids = choose((target,), matrix.ids, matrix.gone, problems) if target.sound else []
        if len(ids) > 1:
            problems.add(
                target.at,
                f"the alias `{tag}` names {len(ids)} targets: {ids[0]}, {ids[1]}"
                + (", ..." if len(ids) > 2 else ""),
                "an alias belongs to exactly one",
            )
        elif ids:
            aliases.setdefault(ids[0], []).append(SourceText(tag, target.at, kinds.TAG))
    return aliases


def _target(
    context: TargetContext,
    point: Point,
    settings: TargetSettings,
    smokes: list[SmokeTable],
    waivers: list[CheckWaiverTable],
    aliases: list[SourceText],
) -> Target:
    file, root, problems = context.file, context.root, context.problems
    backend = file.backend[point.backend]
    filler = Filler(point.id, _values(file, point), context.commit, problems)

    def filled(text: SourceText | None, default: str, kind: Kind = kinds.TEXT) -> str:
        return filler.fill(text or SourceText(default, backend.at, kind))

    def convert(said: object) -> object:
        filled = plain(said, filler.fill)
        return tuple(dict.fromkeys(filled)) if isinstance(filled, tuple) else filled

    def existing(text: SourceText) -> str:
        path = tidy(filler.fill(text))
        check_exists(root, path, text.at, problems)
        return path

    requirements = tuple(dict.fromkeys(existing(text) for text in sound(settings.requirements)))
    pyproject = existing(settings.pyproject) if settings.pyproject else None
    lock = tidy(filled(settings.lock, "locks/pylock.{id}.toml", kinds.LOCK_PATH))
    has_own_lock = settings.lock is not None and _is_committed(root, lock, settings)
    if settings.environment and not is_pixi_lock(lock):
        message = f"`environment` of {point.id} needs a lock of pixi"
        at = settings.environment.at
        problems.doubt(at, message, 'write `lock = "pixi.lock"`', "environment")
    if settings.lock is not None and has_own_lock:
        check_exists(root, lock, settings.lock.at, problems)
        _check_committed(point, lock, settings, problems)
    else:
        _check_inputs(point, backend, settings, problems)
    if settings.install_project and not settings.pyproject:
        message = f"`install-project` of {point.id} needs a `pyproject` to install"
        hint = 'write `pyproject = "pyproject.toml"`'
        problems.doubt(backend.at, message, hint, "install-project")
    template = tidy(filled(settings.template, f"{point.backend}.Dockerfile.j2"))
    if settings.template and "/" in template:
        check_exists(root, template, settings.template.at, problems)
    templates = file.tags.templates or (SourceText("{version}-{id}", file.tags.at, kinds.TAG),)
    return build(
        Target,
        settings,
        convert,
        **asdict(point),
        id=point.id,
        project=file.project.name.value,
        runtime_values={
            key: text.value for key, text in runtimes_of(backend)[point.runtime].items()
        },
        base=_base(point, backend, settings, filler, problems),
        requirements=requirements,
        pyproject=pyproject,
        template=template,
        copy=tuple(
            dict.fromkeys(
                (tidy(filler.fill(source)), filler.fill(destination))
                for source, destination in settings.copy or ()
                if source.sound and destination.sound
            )
        ),
        command=plain(settings.command) or (),
        user=build(User, settings.user) if settings.user else User(),
        image=filled(file.project.image, "{project}", kinds.REPOSITORY),
        tags=convert((*templates, *aliases)),
        lock=f"{TAKEN_LOCKS}/pylock.{point.id}.toml" if has_own_lock else lock,
        smoke=tuple(
            build(Smoke, smoke, timeout_s=plain(smoke.timeout) or 120.0)
            for smoke in smokes
            if smoke.name.sound and smoke.level.sound
        ),
        committed_lock=lock if has_own_lock else "",
        check_waivers=tuple(build(CheckWaiver, waive) for waive in waivers),
        node_classes=tuple(
            node for node in context.node_classes if node.runs_target(point.id, point.backend)
        ),
    )


def _values(file: SpecFile, point: Point) -> dict[str, str | None]:
    """Return the values of the placeholders of one target."""
    runtime = runtimes_of(file.backend[point.backend])[point.runtime]
    texts = {
        "project": file.project.name,
        "version": file.project.version,
        **{f"runtime.{key}": text for key, text in runtime.items()},
    }
    return {
        "id": point.id,
        **asdict(point),
        **{name: text.value if text.sound else None for name, text in texts.items()},
    }


def _choices(settings: TargetSettings) -> tuple[BaseTable, ...]:
    """Return `base` as a list of choices, in whichever form it is written."""
    match settings.base:
        case SourceText() as image:
            return (BaseTable(at=image.at, when=None, build=None, final=image),)
        case BaseTable() as choice:
            return (choice,)
        case choices:
            return choices or ()


def _base(
    point: Point,
    backend: BackendTable,
    settings: TargetSettings,
    filler: Filler,
    problems: Problems,
) -> Base:
    choices = _choices(settings)
    for choice in choices:
        if choice.when is None or meets_conditions(choice.when, point):
            final = filler.fill(choice.final)
            build = choice.build or choice.final
            return Base(filler.fill(build), final, build.at, choice.final.at)
    if choices:
        hint = "widen a `when`, or add a last entry without one"
        problems.doubt(choices[-1].at, f"no base image matches {point.id}", hint, "base")
    else:
        message = f"backend `{point.backend}` has no `base`"
        hint = 'write `base = "python:{python}-slim-bookworm"` or the image of your vendor'
        problems.doubt(backend.at, message, hint)
    return Base("", "")


def _check_inputs(
    point: Point, backend: BackendTable, settings: TargetSettings, problems: Problems
) -> None:
    """Note settings that need others beside them, without a lock of the project."""
    if not settings.requirements and not settings.pyproject:
        message = f"{point.id} installs nothing: it has neither `requirements` nor `pyproject`"
        hint = 'write `requirements = ["requirements.in"]` in [defaults]'
        problems.doubt(backend.at, message, hint, "requirements")
    if settings.extras and not settings.pyproject:
        message = f"`extras` of {point.id} need a `pyproject` that declares them"
        problems.doubt(
            settings.extras[0].at, message, 'write `pyproject = "pyproject.toml"`', "extras"
        )
    for key, parts in (("groups", settings.groups), ("only-groups", settings.only_groups)):
        if parts:
            message = f"`{key}` of {point.id} need a lock of the project"
            hint = 'write `lock = "uv.lock"`, or list a requirements file for the group'
            problems.doubt(parts[0].at, message, hint, key)


def _is_committed(root: Path, path: str, settings: TargetSettings) -> bool:
    """Return True if `path` is the project's own lock, not one that `buildmatrix lock` writes."""
    if not path.endswith(".toml"):
        return True
    if not is_pylock(path.rpartition("/")[2]):
        return False
    try:
        with (root / path).open("rb") as file:
            return file.read(len(LOCK_HEADER)) != LOCK_HEADER.encode()
    except OSError:
        return not settings.requirements and not settings.pyproject


def _check_committed(point: Point, lock: str, settings: TargetSettings, problems: Problems) -> None:
    """Note resolution settings, which have no effect if the project has the lock."""
    decides = f"no effect in {point.id}: `{lock}` decides what is installed"
    if settings.requirements:
        message, hint = f"`requirements` have {decides}", "leave out `requirements`, or `lock`"
        problems.doubt(settings.requirements[0].at, message, hint, "requirements")
    if settings.replace:
        hint = "lock the other distribution there, in an extra for this backend"
        first = next(iter(settings.replace.values()))
        problems.doubt(first.at, f"`replace` has {decides}", hint, "replace")
    has_environments = is_pixi_lock(lock)
    for key, parts, is_wrong in (
        ("extras", settings.extras, is_conda_lock(lock)),
        ("groups", settings.groups, has_environments),
        ("only-groups", settings.only_groups, is_conda_lock(lock)),
    ):
        if parts and is_wrong:
            hint = "write `environment`" if has_environments else "write categories as `groups`"
            problems.doubt(parts[0].at, f"`{lock}` has no `{key}`, as {point.id} asks", hint, key)
    if settings.only_groups and (settings.extras or settings.groups):
        message = f"{point.id} has `only-groups`, together with extras or groups"
        problems.doubt(
            settings.only_groups[0].at, message, "leave out one of the two", "only-groups"
        )
