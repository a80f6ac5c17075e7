"""The interface of an engine, its inputs and outputs, and readers of an image's files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from buildmatrix.base.child import scratch
from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.base.progress import Progress
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.trees.base import Tree
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Spec, Target

if TYPE_CHECKING:
    from buildmatrix.images.documents import Platform


#: File in the output folder of a scan.
INVENTORY = "inventory.json"


class Surroundings(Struct, frozen=True):
    """Machine-specific settings of a build; never part of generated files."""

    #: Prefix for every base image, `localhost:5000/`; empty for none.
    mirror: str = ""
    #: `host`, `none` or empty for the builder's default.
    network: str = ""
    #: Secret ID → file on this machine, mounted into the steps that require it.
    secrets: Mapping[str, Path] = field(default_factory=dict)
    #: Name of an engine, or `auto`.
    engine: str = "auto"
    #: Seconds without output until a builder is pinged, and timeout of the ping.
    builder_patience: float = 60.0


class Ingredients(Struct, frozen=True):
    """Inputs of an image, for an engine that does not run Dockerfiles."""

    spec: Spec
    target: Target
    lock: Lock


class BuildJob(Struct, frozen=True):
    """One target to build and scan."""

    id: str
    #: The generated bake file, and the target names in it.
    bake_file: Path
    image_target: str
    scan_target: str
    #: Working folder of the bake file: that of the specification.
    context: Path
    tags: tuple[str, ...]
    log: Path
    #: Folder that receives the scanner's output.
    scan_output: Path
    #: True if the image is needed on this machine, to run commands in it. The daemon's own builder
    #: always leaves images here.
    load: bool = True
    #: Digests of the configuration and the manifest of the scanned image: `push` publishes no
    #: other. Not every builder reports the first one.
    config: str | None = None
    digest: str | None = None
    #: Name of a loaded image until its gates have passed: `tags` are not moved before. Empty: it is
    #: tagged at once.
    staged: str = ""
    #: Name of the image's buildx builder; None for the current one.
    builder: str | None = None
    #: The content of the Dockerfile, as data. None if an image is only scanned.
    ingredients: Ingredients | None = None


class BuildOutcome(Struct, frozen=True):
    """Result of a successful job."""

    id: str
    #: Digest of the image, as reported by the builder (`sha256:...`).
    digest: str
    #: `inventory.json` of the scanner.
    inventory: Path
    seconds: float
    #: Digest of the image's configuration, which does not change when it is loaded or pushed.
    config: str | None = None
    #: True if the image is on this machine.
    loaded: bool = True
    #: Environment variables of the image's configuration.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Its labels.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Base image → digest, as far as the provenance records them.
    bases: Mapping[str, str] = field(default_factory=dict)
    #: True if the inventory includes the layers.
    has_layers: bool = False


class Pushed(Struct, frozen=True):
    """Result of publishing."""

    #: Target → digest in the registry.
    digests: Mapping[str, str] = field(default_factory=dict)
    #: The target that failed, and the reason; later targets were not tried.
    stopped_at: str | None = None
    error: BuildmatrixError | None = None


class ImageFacts(Struct, frozen=True):
    """Facts of an image, as reported by its engine."""

    digest: str
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    #: Bytes, as counted by the engine.
    size: int
    user: str
    #: `created_by` of each layer with its bytes, oldest first.
    history: tuple[tuple[str, int], ...] = ()
    #: Digests of its uncompressed layers, the lowest first.
    layers: tuple[str, ...] = ()


class RunResult(Struct, frozen=True):
    """Result of a command in a container."""

    exit_code: int
    output: str
    timed_out: bool
    #: Duration in seconds of a command on another machine, which the caller cannot measure.
    seconds: float | None = None


#: Runs a command with a timeout in seconds.
Run = Callable[[Sequence[str], float], RunResult]


class DeviceAccess(Struct, frozen=True):
    """Devices of this machine to expose to a container; none by default."""

    #: Character devices: absolute paths, the same inside.
    nodes: tuple[str, ...] = ()
    #: IDs of the groups that may open them. IDs in the image's `/etc/group` differ.
    groups: tuple[int, ...] = ()
    #: Devices of the Container Device Interface: `amd.com/gpu=all`.
    cdi: tuple[str, ...] = ()
    #: Request all NVIDIA GPUs by Docker's own `--gpus all`.
    gpus: bool = False
    #: The vendor's runtime of the Docker daemon, which reads `environment`.
    runtime: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the options of `docker run`."""
        options = [f"--device {name}" for name in (*self.cdi, *self.nodes)]
        options += ["--gpus all"] if self.gpus else []
        options += [f"--runtime {self.runtime}"] if self.runtime else []
        options += [f"--group-add {number}" for number in self.groups]
        return " ".join(options)


NO_DEVICES = DeviceAccess()


class Facilities(Struct, frozen=True):
    """Facts of the engine's machine."""

    #: Available container runtimes: `runc`, `nvidia`.
    runtimes: tuple[str, ...] = ()
    #: Folder of its images, if on this machine.
    folder: Path | None = None
    #: True if it supports devices of the Container Device Interface, and the devices that it
    #: reports; older engines report none.
    has_cdi: bool = False
    cdi: tuple[str, ...] = ()
    #: True if it supports `DeviceAccess.gpus`.
    has_gpus: bool = False
    #: True if commands see this machine's files, and so the libraries of its drivers.
    has_host_files: bool = False


class Runner(Protocol):
    """Runs commands, with or without devices of this machine."""

    def facilities(self) -> Facilities:
        """Return the facts of the runner's machine."""

    def cannot_run(self, reference: str) -> BuildmatrixError | None:
        """Return why no command of that image can run on this machine; None if it can be tried.

        A `ComponentError` if something has to be installed, else an `UndecidedError`: the command
        may run on another machine.
        """

    def runner(
        self, reference: str, devices: DeviceAccess = NO_DEVICES
    ) -> AbstractContextManager[Run]:
        """Yield a function that runs commands, each in a container without network or mounts.

        The container has `devices`, and no others. If one is missing when a command starts, the
        command exits with 127, like a missing program.
        """


class Engine(Runner, Protocol):
    """Builds, opens and runs images.

    Every method raises `ComponentError` if the engine is missing or too old or its daemon is down,
    `BuildError` (with `log`) for a failed build, and `UndecidedError` for an unreachable host.
    """

    name: str

    def check(self, builder: str | None = None) -> str:
        """Return the engine's version line. Raises `ComponentError` if it is unusable.

        Raises `UsageError` if there is no builder with that name.
        """

    def refusals(self, jobs: Sequence[BuildJob]) -> Mapping[str, BuildmatrixError]:
        """Return target → reason why the engine cannot build it, as far as the specification tells.

        Cheap; nothing is fetched.
        """

    def build(self, job: BuildJob, surroundings: Surroundings, progress: Progress) -> BuildOutcome:
        """Build and scan one target. Blocks; thread-safe."""

    def release(self, staged: str, tags: Sequence[str]) -> None:
        """Move `tags` on this machine to the image `staged`, and remove that name."""

    def cancel(self) -> None:
        """Cancel all running builds; blocked `build` calls raise `Interrupted`."""

    def close(self) -> None:
        """Close connections and open files."""

    def image(self, reference: str) -> ImageFacts | None:
        """Return the facts of an image; None if the engine does not have it."""

    def present(self, references: Sequence[str]) -> Mapping[str, str]:
        """Return reference → digest of the images on this machine, in one cheap call."""

    def unreachable(self, references: Sequence[str], builder: str | None) -> Mapping[str, str]:
        """Return reference → reason why its registry is unreachable, as far as can be found out.

        Publishes nothing. A registry that refuses requests counts as reachable.
        """

    def push(
        self,
        jobs: Sequence[BuildJob],
        surroundings: Surroundings,
        progress: Progress,
        *,
        tagged: bool = True,
    ) -> Pushed:
        """Publish all tags of all jobs; stop at the first failure, which is returned, not raised.

        Unless `tagged`, push only the images by digest, to the repositories of their tags.

        If an image is not the scanned one, the failure is an `UndecidedError` and nothing is
        published.
        """

    def export(self, reference: str) -> AbstractContextManager[Iterator[bytes]]:
        """Stream the bytes of `docker save` for an existing image; nothing is stored."""


# Files of an image


OpenTree = Callable[[], AbstractContextManager[Tree]]


@contextmanager
def saved_image(path: Path, wanted: Platform | None = None) -> Iterator[Tree]:
    """Open the files of a saved image; of several, the one for the platform `wanted`."""
    from buildmatrix.images.saved_image import SavedImage

    with SavedImage(path, wanted) as image:
        yield image.tree()


@contextmanager
def export_image(engine: Engine, image: str) -> Iterator[Tree]:
    """Open the files of an engine's image by exporting it to a temporary file."""
    with scratch("image") as folder:
        path = folder / "image.tar"
        with path.open("wb") as file, engine.export(image) as chunks:
            for chunk in chunks:
                file.write(chunk)
        with saved_image(path) as tree:
            yield tree


def layers_of_image(name: str, engine: Engine, inventory: Inventory) -> Inventory:
    """Return an inventory with only the layers of an engine's image.

    Raises OSError and the engine's errors.
    """
    from buildmatrix.images.image import LayerReader, read_export
    from buildmatrix.images.merging import add_layers, merge_layers
    from buildmatrix.images.store.cache import Cache

    reader = LayerReader(Cache(None), names_only=True)
    configuration, blobs = read_export(lambda: engine.export(name), reader)
    tree = merge_layers(reader.layers(blobs))
    read = add_layers(inventory, tree, configuration.digests, configuration.instructions)
    return Inventory(layers=read.layers, origins=read.origins, buried=read.buried)
