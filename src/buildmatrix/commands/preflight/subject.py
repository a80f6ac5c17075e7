"""Subject of a preflight: an image, and the facts about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from buildmatrix.engines.choice import AUTO
from buildmatrix.engines.model import Engine, ImageFacts
from buildmatrix.errors import UndecidedError, UsageError
from buildmatrix.registry.reference import Reference
from buildmatrix.spec.bare import bare_spec, bare_target
from buildmatrix.spec.model import NodeClass, Spec, Target
from buildmatrix.spec.points import select
from buildmatrix.state.folder import State, TargetFiles
from buildmatrix.state.journal import load


@dataclass(frozen=True, slots=True)
class Subject:
    """An image to run, with its actual or assumed target."""

    target: Target
    spec: Spec
    engine: Engine
    reference: str
    image: ImageFacts
    #: Files of its last local build; None for an image outside of the specification.
    files: TargetFiles | None = None

    @property
    def node_classes(self) -> tuple[NodeClass, ...]:
        """Node classes that it must run on."""
        return self.target.node_classes


def select_targets(
    pattern: str, spec: Spec, engines: Callable[[str], Engine], engine: str = AUTO
) -> tuple[Subject, ...]:
    """Return the targets that a pattern matches, each with its last local image.

    Raises `UsageError` if none matches, and `UndecidedError` if one has no local image.
    """
    state = State.beside(spec.root)
    subjects = []
    for target in select(spec, [pattern], None):
        files = state.target_files(target.id)
        subjects.append(
            Subject(target, spec, *find_last_image(target, files, engines, engine), files)
        )
    return tuple(subjects)


def find_last_image(
    target: Target, files: TargetFiles, engines: Callable[[str], Engine], engine: str
) -> tuple[Engine, str, ImageFacts]:
    """Return engine, name and facts of a target's last local image, else of its first tag's.

    Raises `UndecidedError` if neither is on this machine.
    """
    record = load(files)
    names = (*(record.tags if record else ()), *target.references)
    # The image is in the engine that built it, unless another one is requested.
    keeper = engines(record.engine if record and engine == AUTO else engine)
    image = _find_first(keeper, names)
    if image is None:
        raise UndecidedError(
            f"{target.id}: no image of it is on this machine "
            f"({', '.join(names) or 'no tags'}); run `buildmatrix build` first"
        )
    return keeper, *image


def find_image(name: str, backend: str | None, spec: Spec | None, engine: Engine) -> Subject:
    """Return an image by name, for a backend or that of its labels.

    Raises `UsageError` if neither is known, and `UndecidedError` if the image is missing.
    """
    image = _find_first(engine, [name])
    if image is None:
        raise UndecidedError(f"{name} is not on this machine; pull it, or name a target")
    labels = image[1].labels
    backend = backend or labels.get("dev.buildmatrix.backend")
    if backend is None:
        raise UsageError(f"{name} does not say which backend it is for; give --backend")
    target = _make_bare_target(name, backend, labels.get("dev.buildmatrix.runtime", "any"), spec)
    return Subject(target, spec or bare_spec(target), engine, *image)


def make_reference_subject(
    name: str, backend: str, spec: Spec | None, engine: Engine, target: Target | None = None
) -> Subject:
    """Return an image in a registry, by a name with a digest; it may be missing locally.

    Raises `UsageError` for a name without a digest, which could be a different image elsewhere.
    """
    digest = Reference.parse(name).digest
    if not digest:
        raise UsageError(f"{name} has no digest; name the image as HOST/NAME@sha256:...")
    files = None
    if target is None:
        target = _make_bare_target(name, backend, "any", spec)
    elif spec is not None:
        files = State.beside(spec.root).target_files(target.id)
    facts = ImageFacts(digest, {}, {}, 0, "")
    return Subject(target, spec or bare_spec(target), engine, name, facts, files)


def _make_bare_target(name: str, backend: str, runtime: str, spec: Spec | None) -> Target:
    """Return a target for another image, with the node classes of its backend."""
    target = bare_target(name, backend, runtime)
    if spec is None:
        return target
    classes = tuple(node for node in spec.node_classes if node.backend == backend)
    return replace(target, node_classes=classes)


def _find_first(engine: Engine, names: Sequence[str]) -> tuple[str, ImageFacts] | None:
    images = ((name, engine.image(name)) for name in names)
    return next(((name, image) for name, image in images if image is not None), None)
