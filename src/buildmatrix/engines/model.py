"""The interface of an engine, and what goes in and out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from buildmatrix.errors import BuildmatrixError
from buildmatrix.locks.model import Lock
from buildmatrix.progress import Progress
from buildmatrix.spec.model import Spec, Target

#: What a scan leaves in its output folder.
INVENTORY = "inventory.json"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a build needs from the machine it is started on; never part of generated files."""

    #: Prefix for every base image, `localhost:5000/`; empty for none.
    mirror: str = ""
    #: `host`, `none` or empty for the builder's default.
    network: str = ""
    #: Secret id → file on this machine, mounted into the steps that ask for it.
    secrets: Mapping[str, Path] = field(default_factory=dict)
    #: Who builds: the name of an engine, or `auto`.
    engine: str = "auto"
    #: Seconds of silence after which a builder is asked whether it lives, and for its answer.
    builder_patience: float = 60.0


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What an image is made of, for an engine that reads no Dockerfile."""

    spec: Spec
    target: Target
    lock: Lock


@dataclass(frozen=True, slots=True)
class BuildJob:
    """One target to build and scan."""

    id: str
    #: The generated bake file, and the names in it.
    bake_file: Path
    image_target: str
    scan_target: str
    #: Working folder of the bake file: the specification's.
    context: Path
    tags: tuple[str, ...]
    log: Path
    #: Folder that receives the scanner's output.
    scan_output: Path
    #: Whether the image is needed on this machine: to run in it, not only to push it. The images
    #: of a daemon's own builder are here in any case.
    load: bool = True
    #: Digests of the configuration and the manifest of the image that was scanned: `push` publishes
    #: no other. Not every builder says the first of an image that it hands over.
    config: str | None = None
    digest: str | None = None
    #: The name that a loaded image has until its gates have passed: `tags` stay where they are
    #: until then. Empty: it gets its tags at once.
    staged: str = ""
    #: Name of the buildx builder that makes the image, or has it; None for the current one.
    builder: str | None = None
    #: What the Dockerfile says, as data. None where an image is only scanned.
    ingredients: Ingredients | None = None


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """What came out of one job that succeeded."""

    id: str
    #: Digest of the image as the builder names it (`sha256:...`).
    digest: str
    #: `inventory.json` of the scanner.
    inventory: Path
    seconds: float
    #: Digest of the image's configuration: the same wherever the image is loaded or pushed.
    config: str | None = None
    #: Whether the image is on this machine.
    loaded: bool = True
    #: Environment variables of the image's configuration.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Its labels.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Digests of the base images, reference → digest, where provenance names them.
    bases: Mapping[str, str] = field(default_factory=dict)
    #: Whether the inventory has the layers already.
    has_layers: bool = False


@dataclass(frozen=True, slots=True)
class Pushed:
    """How far publishing got."""

    #: Target → digest in the registry.
    digests: Mapping[str, str] = field(default_factory=dict)
    #: The target that could not be published, and why; those behind it were not tried.
    stopped_at: str | None = None
    error: BuildmatrixError | None = None


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an engine says of an image that it has."""

    digest: str
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    #: Bytes, as the engine counts them.
    size: int
    user: str
    #: `created_by` of each layer with its bytes, oldest first.
    history: tuple[tuple[str, int], ...] = ()
    #: Digests of its uncompressed layers, the lowest first.
    layers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a command inside a container ended."""

    exit_code: int
    output: str
    timed_out: bool
    #: Seconds that it took, where it ran elsewhere and whoever asks cannot measure it.
    seconds: float | None = None


#: Runs a command, for some seconds at most.
Run = Callable[[Sequence[str], float], RunResult]


@dataclass(frozen=True, slots=True)
class DeviceAccess:
    """The devices of this machine that a container gets beside its image; none by default."""

    #: Character devices: absolute paths, the same inside.
    nodes: tuple[str, ...] = ()
    #: Numbers of the groups that may open them. An image's `/etc/group` has other numbers.
    groups: tuple[int, ...] = ()
    #: Devices of the Container Device Interface: `amd.com/gpu=all`.
    cdi: tuple[str, ...] = ()
    #: Docker's own request for all NVIDIA GPUs, `--gpus all`.
    gpus: bool = False
    #: The vendor's runtime of the Docker daemon, which reads `environment`.
    runtime: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """What it is, as options of `docker run`."""
        options = [f"--device {name}" for name in (*self.cdi, *self.nodes)]
        options += ["--gpus all"] if self.gpus else []
        options += [f"--runtime {self.runtime}"] if self.runtime else []
        options += [f"--group-add {number}" for number in self.groups]
        return " ".join(options)


NO_DEVICES = DeviceAccess()


@dataclass(frozen=True, slots=True)
class Facilities:
    """What an engine says of the machine that it runs on."""

    #: Runtimes that containers can be started with: `runc`, `nvidia`.
    runtimes: tuple[str, ...] = ()
    #: Where its images are, if that is a folder of this machine.
    folder: Path | None = None
    #: Whether it gives containers devices of the Container Device Interface, and those that it
    #: says it has; older ones say nothing.
    has_cdi: bool = False
    cdi: tuple[str, ...] = ()
    #: Whether it knows `DeviceAccess.gpus`.
    has_gpus: bool = False


class Engine(Protocol):
    """Builds, opens and runs images.

    Every method raises `ComponentError` when the engine is missing, too old or its daemon is down,
    `BuildError` when a build failed (with `log`), `UndecidedError` for what it could not reach.
    """

    name: str

    def check(self, builder: str | None = None) -> str:
        """The engine's version line; raises `ComponentError` when it cannot be used.

        Raises `UsageError` when there is no builder of that name.
        """

    def facilities(self) -> Facilities:
        """What it says of the machine that it runs on."""

    def refusals(self, jobs: Sequence[BuildJob]) -> Mapping[str, BuildmatrixError]:
        """Target → why the engine cannot build it, as far as the specification shows it.

        Costs nothing, and comes before anything is fetched.
        """

    def build(self, job: BuildJob, surroundings: Surroundings, progress: Progress) -> BuildOutcome:
        """Build and scan one target. Blocks; may be called from several threads."""

    def release(self, staged: str, tags: Sequence[str]) -> None:
        """Move `tags` on this machine to the image `staged`, and take that name from it."""

    def cancel(self) -> None:
        """End every build that runs, soon; the blocked `build` calls raise `Interrupted`."""

    def close(self) -> None:
        """Free what it holds: connections, open files."""

    def image(self, reference: str) -> ImageFacts | None:
        """The facts of an image that the engine has, or None."""

    def present(self, references: Sequence[str]) -> Mapping[str, str]:
        """Reference → digest of those images that are on this machine; one cheap call for all."""

    def unreachable(self, references: Sequence[str], builder: str | None) -> Mapping[str, str]:
        """Reference → why its registry cannot be reached, as far as that can be found out.

        Nothing is published for it, and a registry that refuses to answer counts as reached.
        """

    def push(
        self,
        jobs: Sequence[BuildJob],
        surroundings: Surroundings,
        progress: Progress,
        *,
        tagged: bool = True,
    ) -> Pushed:
        """Publish all tags of all jobs, until one cannot be published.

        Unless `tagged`, the images alone, by their digests, to the repositories of their tags.

        That is an `UndecidedError`, before anything is published, when an image would not be the
        one that was scanned. Nothing of it is raised.
        """

    def cannot_run(self, reference: str) -> BuildmatrixError | None:
        """Why no command of that image can be run on this machine; None where it can be tried.

        A `ComponentError` where something is to be installed, else an `UndecidedError`: another
        machine has the answer.
        """

    def runner(
        self, reference: str, devices: DeviceAccess = NO_DEVICES
    ) -> AbstractContextManager[Run]:
        """Runs commands in an image, each in a container without network or mounts.

        It has `devices`, and no others. One that is gone when a command starts ends that command
        with exit code 127, as an unknown program does.
        """

    def export(self, reference: str) -> AbstractContextManager[Iterator[bytes]]:
        """The bytes of `docker save` for an existing image, as they come; nothing is stored."""
