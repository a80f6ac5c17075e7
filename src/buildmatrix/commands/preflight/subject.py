"""What a preflight is about: an image on this machine, and what is known of it."""

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
    """An image that is run, and the target that it is, or seems to be."""

    target: Target
    spec: Spec
    engine: Engine
    reference: str
    image: ImageFacts
    #: What its last build here left; None for an image that is no target.
    files: TargetFiles | None = None

    @property
    def node_classes(self) -> tuple[NodeClass, ...]:
        """The machines that it is to run on."""
        return self.target.node_classes


def of_targets(
    pattern: str, spec: Spec, engines: Callable[[str], Engine], engine: str = AUTO
) -> tuple[Subject, ...]:
    """The targets that a pattern matches, each with the image of its last build here.

    Raises `UsageError` where none matches, and `UndecidedError` where one has no image here.
    """
    state = State.beside(spec.root)
    subjects = []
    for target in select(spec, [pattern], None):
        files = state.target_files(target.id)
        subjects.append(Subject(target, spec, *last_image(target, files, engines, engine), files))
    return tuple(subjects)


def last_image(
    target: Target, files: TargetFiles, engines: Callable[[str], Engine], engine: str
) -> tuple[Engine, str, ImageFacts]:
    """The image of a target's last build here, else that of its first tag: who has it, its name.

    Raises `UndecidedError` where neither is on this machine.
    """
    record = load(files)
    names = (*(record.tags if record else ()), *target.references)
    # An image is where it was built, unless somebody says otherwise.
    keeper = engines(record.engine if record and engine == AUTO else engine)
    image = _first(keeper, names)
    if image is None:
        raise UndecidedError(
            f"{target.id}: no image of it is on this machine "
            f"({', '.join(names) or 'no tags'}); run `buildmatrix build` first"
        )
    return keeper, *image


def of_image(name: str, backend: str | None, spec: Spec | None, engine: Engine) -> Subject:
    """An image by its name, for a backend or for the one that its labels say.

    Raises `UsageError` where nothing says which, and `UndecidedError` where it is not here.
    """
    image = _first(engine, [name])
    if image is None:
        raise UndecidedError(f"{name} is not on this machine; pull it, or name a target")
    labels = image[1].labels
    backend = backend or labels.get("dev.buildmatrix.backend")
    if backend is None:
        raise UsageError(f"{name} does not say which backend it is for; give --backend")
    target = _bare(name, backend, labels.get("dev.buildmatrix.runtime", "any"), spec)
    return Subject(target, spec or bare_spec(target), engine, *image)


def of_reference(
    name: str, backend: str, spec: Spec | None, engine: Engine, target: Target | None = None
) -> Subject:
    """An image in a registry, by its name with a digest, that need not be on this machine.

    Raises `UsageError` for a name without a digest: what runs elsewhere would be any image.
    """
    digest = Reference.parse(name).digest
    if not digest:
        raise UsageError(f"{name} has no digest; name the image as HOST/NAME@sha256:...")
    files = None
    if target is None:
        target = _bare(name, backend, "any", spec)
    elif spec is not None:
        files = State.beside(spec.root).target_files(target.id)
    facts = ImageFacts(digest, {}, {}, 0, "")
    return Subject(target, spec or bare_spec(target), engine, name, facts, files)


def _bare(name: str, backend: str, runtime: str, spec: Spec | None) -> Target:
    """What an image that is no target would be, with the node classes of its backend."""
    target = bare_target(name, backend, runtime)
    if spec is None:
        return target
    classes = tuple(node for node in spec.node_classes if node.backend == backend)
    return replace(target, node_classes=classes)


def _first(engine: Engine, names: Sequence[str]) -> tuple[str, ImageFacts] | None:
    images = ((name, engine.image(name)) for name in names)
    return next(((name, image) for name, image in images if image is not None), None)
