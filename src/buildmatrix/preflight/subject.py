"""Subject of a preflight: an image, the facts about it, and its access to devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.base.text import listing
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import BackendBuild, backend_build
from buildmatrix.catalogue.tables import Host
from buildmatrix.engines import AUTO
from buildmatrix.engines.model import (
    NO_DEVICES,
    DeviceAccess,
    Engine,
    Facilities,
    ImageFacts,
    Runner,
)
from buildmatrix.matrix.matrix import select
from buildmatrix.matrix.model import NodeClass, Spec, Target, bare_spec, bare_target
from buildmatrix.preflight.machine import MachineFacts, MachineFiles, collect_facts
from buildmatrix.sources.state_folder import State, TargetFiles, load

# Access of a container to this machine's devices.
#
# The catalogue's entries for a backend's hosts are matched with this machine, as in `doctor`. A way
# to pass devices in that also provides the host's libraries comes first: the Container Device
# Interface, then Docker's `--gpus`, then a vendor's runtime, then plain nodes. Privileged mode and
# access to host memory, which vendors' documents also request, are never granted.


def find_access(
    machine: MachineFiles,
    catalogue: Catalogue,
    backend: str,
    facilities: Facilities,
    cdi: Sequence[str] = (),
) -> tuple[DeviceAccess, str]:
    """Return a container's access to the devices of a backend; and why none, if they exist.

    `cdi` are the devices named in a node class. Without devices on this machine, both are empty.
    """
    hosts = _find_hosts(catalogue, backend)
    build = backend_build(catalogue, backend)
    seen = [(host, collect_facts(machine, backend, host, facilities.runtimes)) for host in hosts]
    nodes: list[str] = []
    for host, fact in seen:
        nodes += fact.nodes
        if fact.nodes:
            # Those that programs also need.
            nodes += [node for pattern in host.needs for node in machine.nodes(pattern)]
    if not hosts:
        # Interfaces of several vendors, such as OpenCL, have no devices of their own.
        nodes = [node for path in _list_device_paths(build) for node in machine.devices(path)]
    if not nodes:
        return NO_DEVICES, ""
    if facilities.folder is None:
        return NO_DEVICES, f"{listing(nodes)} is here, and the engine seems to be elsewhere"
    facts = [facts for _, facts in seen]
    if facilities.has_cdi and (names := tuple(cdi) or _list_cdi_devices(seen, facilities)):
        return DeviceAccess(cdi=names), ""
    if facilities.has_gpus and any(run.options == ("--gpus", "all") for run in build.runs):
        return DeviceAccess(gpus=True), ""
    if runtime := next((name for item in facts for name in item.runtimes), ""):
        variables = {name: value for part in build.final for name, value in part.variables.items()}
        return DeviceAccess(runtime=runtime, environment=variables), ""
    if hosts and not any(_list_device_paths(build)) and not facilities.has_host_files:
        wanted = next((" ".join(run.options) for run in build.runs), "no options are known")
        return NO_DEVICES, (
            f"{listing(nodes)} is here, and containers of this engine would need more than these "
            f"nodes (`docker run`: {wanted})"
        )
    groups = {number for node in nodes if (number := machine.group(node))}
    return DeviceAccess(tuple(dict.fromkeys(nodes)), tuple(sorted(groups))), ""


def find_nodes(machine: MachineFiles, catalogue: Catalogue, backend: str) -> tuple[str, ...] | None:
    """Return device nodes of the backend on this machine; None without known names."""
    hosts = _find_hosts(catalogue, backend)
    if not hosts:
        return None
    return tuple(node for host in hosts for node in collect_facts(machine, backend, host, ()).nodes)


def _find_hosts(catalogue: Catalogue, backend: str) -> list[Host]:
    return [owned.entry for owned in catalogue.hosts if owned.backend == backend]


def _list_cdi_devices(
    seen: Sequence[tuple[Host, MachineFacts]], facilities: Facilities
) -> tuple[str, ...]:
    """Return all devices of the backend's kinds, by the name `all` if there is one."""
    names = []
    described = {kind for _, facts in seen for kind in facts.cdi}
    for kind in dict.fromkeys(kind for host, _ in seen for kind in host.cdi):
        offered = [name for name in facilities.cdi if name.partition("=")[0] == kind]
        every = f"{kind}=all"
        # Older daemons do not list their devices.
        is_unlisted = not facilities.cdi and kind in described
        names += [every] if every in offered or is_unlisted else offered
    return tuple(names)


def _list_device_paths(build: BackendBuild) -> Iterator[str]:
    """Yield the `/dev` paths for `docker run`, if the catalogue says that these are enough."""
    for run in build.runs:
        if "--privileged" in run.options or "-v" in run.options:
            continue
        words = [word for option in run.options for word in option.split("=", 1)]
        for option, value in pairwise(words):
            if option == "--device" and value.startswith("/dev/"):
                yield value


# Images and their facts


@dataclass(frozen=True, slots=True)
class Subject:
    """An image to run, with its actual or assumed target."""

    target: Target
    spec: Spec
    engine: Runner
    reference: str
    image: ImageFacts
    #: Files of its last local build; None for an image outside of the specification.
    files: TargetFiles | None = None
    #: Sandbox of an environment's commands, or `none`, and why; empty for an image.
    sandbox: str = ""
    without_sandbox: str = ""

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
    target = make_bare_target(name, backend, labels.get("dev.buildmatrix.runtime", "any"), spec)
    return Subject(target, spec or bare_spec(target), engine, *image)


def make_reference_subject(
    name: str, backend: str, spec: Spec | None, engine: Engine, target: Target | None = None
) -> Subject:
    """Return an image in a registry, by a name with a digest; it may be missing locally.

    Raises `UsageError` for a name without a digest, which could be a different image elsewhere.
    """
    from buildmatrix.net.registry_mirrors import Reference

    digest = Reference.parse(name).digest
    if not digest:
        raise UsageError(f"{name} has no digest; name the image as HOST/NAME@sha256:...")
    files = None
    if target is None:
        target = make_bare_target(name, backend, "any", spec)
    elif spec is not None:
        files = State.beside(spec.root).target_files(target.id)
    facts = ImageFacts(digest, {}, {}, 0, "")
    return Subject(target, spec or bare_spec(target), engine, name, facts, files)


def make_bare_target(name: str, backend: str, runtime: str, spec: Spec | None) -> Target:
    """Return a target for another image, with the node classes of its backend."""
    target = bare_target(name, backend, runtime)
    if spec is None:
        return target
    classes = tuple(node for node in spec.node_classes if node.backend == backend)
    return replace(target, node_classes=classes)


def _find_first(engine: Engine, names: Sequence[str]) -> tuple[str, ImageFacts] | None:
    images = ((name, engine.image(name)) for name in names)
    return next(((name, image) for name, image in images if image is not None), None)
