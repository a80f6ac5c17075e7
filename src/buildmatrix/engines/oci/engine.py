"""The engine `oci`, which assembles images without a daemon or root, on any Linux."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from msgspec import Struct, field

from buildmatrix.base.child import scratch
from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    BuildError,
    BuildmatrixError,
    ComponentError,
    Interrupted,
    SpecError,
    UndecidedError,
    UsageError,
)
from buildmatrix.base.progress import Ending, Progress
from buildmatrix.engines.model import (
    INVENTORY,
    NO_DEVICES,
    BuildJob,
    BuildOutcome,
    DeviceAccess,
    Facilities,
    ImageFacts,
    Ingredients,
    Pushed,
    Run,
    RunResult,
    Surroundings,
)
from buildmatrix.engines.oci import cdi, sandboxes
from buildmatrix.engines.oci.bases import Bases
from buildmatrix.engines.oci.confinement import Confined, Sandbox
from buildmatrix.engines.oci.images import Images, push
from buildmatrix.engines.oci.nvidia_driver import describe_driver
from buildmatrix.engines.oci.store import ImageStore
from buildmatrix.engines.oci.unpacking import RootFolder, RootFolders, identity, unpack
from buildmatrix.engines.process import writing
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.images import store as inventories
from buildmatrix.images.documents import Descriptor, this_platform
from buildmatrix.images.layers import iter_archive
from buildmatrix.images.saved_image import read_configuration
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.facts import FactCache
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference

if TYPE_CHECKING:
    from buildmatrix.images.image import LayerReader


class BuildLog(Struct):
    """`Progress` that also writes a log, and stops cancelled builds."""

    log: IO[str]
    progress: Progress
    check: Callable[[], None]
    _start: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, target: str, text: str) -> None:
        """See `Progress.step`."""
        self._line(text)
        self.progress.step(target, text)

    def output(self, target: str, line: str) -> None:
        """See `Progress.output`."""
        self._line(f"| {line}")
        self.progress.output(target, line)

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """See `Progress.part`; not logged."""
        self.check()
        self.progress.part(target, done, total, unit)

    def end(self, target: str) -> None:
        """See `Progress.end`."""
        self.progress.end(target)

    def done(self, target: str, outcome: str, ending: Ending) -> None:
        """See `Progress.done`."""
        self.progress.done(target, outcome, ending)

    def note(self, text: str) -> None:
        """See `Progress.note`."""
        self._line(text)
        self.progress.note(text)

    def _line(self, text: str) -> None:
        self.check()
        with self._lock:
            self.log.write(f"{time.monotonic() - self._start:8.2f} {text}\n")


_NO_BLOB = f"sha256:{'0' * 64}"


class OciEngine:
    """Engine with images in a layout in the state folder, made from layers of `store`."""

    name = "oci"

    def __init__(self, folder: Path, store: ImageStore, cache: Cache, registry: Registry) -> None:
        """Keep images in the layout `folder`, and facts of their layers in `cache`.

        `close` closes `store` and `registry` as well.
        """
        self._images = Images(folder)
        self._store = store
        self._registry = registry
        self._bases: Bases | None = None
        self._cache = cache
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._roots = RootFolders()

    # Images and facilities

    def check(self, builder: str | None = None) -> str:
        """Return the sandbox of this machine; see `Engine.check`."""
        if builder is not None:
            raise UsageError(
                f"--builder {builder} is a builder of Docker's; the engine oci has none, so leave "
                "it out or give --engine docker"
            )
        confined, text = self._sandbox
        return "oci, part of buildmatrix; " + (
            f"smoke commands run by {text}" if confined else f"no smoke commands: {text}"
        )

    def facilities(self) -> Facilities:
        """Return the folder of images, and the available devices; see `Engine.facilities`."""
        offered = cdi.offered(cdi.FOLDERS, describe_driver())
        return Facilities((), self._images.folder, has_cdi=bool(offered), cdi=offered)

    def present(self, references: Sequence[str]) -> Mapping[str, str]:
        """Return reference → digest of the manifest, for complete images."""
        named = self._images.by_name()
        images = {
            name: self._images.find(name) if name.startswith("sha256:") else named.get(name)
            for name in references
        }
        return {
            name: image.digest
            for name, image in images.items()
            if image is not None and self._images.is_whole(image)
        }

    def image(self, reference: str) -> ImageFacts | None:
        """See `Engine.image`; the size is that of the blobs."""
        image = self._images.find(reference)
        if image is None:
            return None
        configuration = self._images.configuration(image)
        layers = self._images.manifest(image).layers
        sizes = iter(layers)
        return ImageFacts(
            digest=image.digest,
            environment=configuration.config.environment,
            labels=configuration.config.labels,
            size=sum(layer.size for layer in layers),
            user=configuration.config.user,
            history=tuple(
                (step.created_by, 0 if step.empty_layer else next(sizes).size)
                for step in configuration.history
            ),
            layers=configuration.rootfs.diff_ids,
        )

    # Building

    def refusals(self, jobs: Sequence[BuildJob]) -> Mapping[str, BuildmatrixError]:
        """Return reasons why a Dockerfile has to be run; see `Engine.refusals`."""
        from buildmatrix.engines.oci.recipe import recipe

        errors: dict[str, BuildmatrixError] = {}
        for job in jobs:
            made_of = _ingredients(job)
            try:
                problems = recipe(made_of.spec, made_of.target, made_of.lock).problems
            except SpecError as error:
                errors[job.id] = error
            else:
                if problems:
                    errors[job.id] = SpecError(problems)
        return errors

    def build(self, job: BuildJob, surroundings: Surroundings, progress: Progress) -> BuildOutcome:
        """Assemble and read one image; see `Engine.build`."""
        from buildmatrix.engines.oci.contents import assemble

        started = time.monotonic()
        made_of = _ingredients(job)
        target = made_of.target
        with writing(job.log.parent):
            job.log.parent.mkdir(parents=True, exist_ok=True)
            job.scan_output.mkdir(parents=True, exist_ok=True)
            with job.log.open("w", encoding="utf-8") as file:
                now = datetime.now(UTC).isoformat(" ", "seconds")
                file.write(f"# {job.id}, {now}: engine oci\n")
                log = BuildLog(file, progress, self._check)
                try:
                    log.step(job.id, f"base image {target.base.final}")
                    base = self._bases_of(surroundings).take(target.base.final, target.platform)
                    built = assemble(made_of.spec, target, made_of.lock, base, self._store, log)
                    self._check()
                    name = job.staged or job.tags[0]
                    self._images.add(self._store.layout, built.descriptor, name)
                    log.step(job.id, "scan")
                    inventory = self._inventory(built.descriptor)
                    self._check()
                except Exception as error:
                    self._check()  # Of what was cancelled, anything may fail.
                    file.write(f"# failed: {error}\n")
                    raise
                file.write(f"# {built.descriptor.digest}\n")
        inventories.write(job.scan_output / INVENTORY, inventory)
        return BuildOutcome(
            job.id,
            built.descriptor.digest,
            job.scan_output / INVENTORY,
            time.monotonic() - started,
            config=built.manifest.config.digest,
            environment=built.configuration.config.environment,
            labels=built.configuration.config.labels,
            bases=dict([built.base]),
            has_layers=True,
        )

    def release(self, staged: str, tags: Sequence[str]) -> None:
        """See `Engine.release`."""
        if tags:
            self._images.move(staged, tags)

    def cancel(self) -> None:
        """Cancel builds and pushes; see `Engine.cancel`."""
        self._cancelled.set()
        self.close()

    def close(self) -> None:
        """See `Engine.close`."""
        self._roots.close()
        self._store.close()
        self._registry.close()

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise Interrupted("interrupted; run again to go on where this stopped")

    def _bases_of(self, surroundings: Surroundings) -> Bases:
        with self._lock:
            if self._bases is None:
                self._bases = Bases(self._registry, surroundings.mirror)
            return self._bases

    # Publishing

    def unreachable(
        self,
        references: Sequence[str],
        builder: str | None,  # noqa: ARG002 - Docker's
    ) -> Mapping[str, str]:
        """Send one request to each registry; see `Engine.unreachable`."""
        reasons: dict[str, str] = {}
        hosts = {Reference.parse(text).host: text for text in reversed(references)}
        for text in hosts.values():
            try:
                self._registry.has_blob(Reference.parse(text), _NO_BLOB)
            except UndecidedError as error:
                reasons[text] = error.message
        return reasons

    def push(
        self,
        jobs: Sequence[BuildJob],
        surroundings: Surroundings,  # noqa: ARG002 - Docker's
        progress: Progress,
        *,
        tagged: bool = True,
    ) -> Pushed:
        """Publish images of the layout; see `Engine.push`."""
        return push(self._images, self._registry, jobs, progress, self._check, tagged=tagged)

    # Running and reading

    @cached_property
    def _sandbox(self) -> tuple[Sandbox | None, str]:
        return sandboxes.usable()

    def cannot_run(self, reference: str) -> BuildmatrixError | None:
        """Return why no sandbox can run the image; see `Engine.cannot_run`."""
        image = self._images.get(reference)
        configuration = self._images.configuration(image)
        here = this_platform().architecture
        if configuration.architecture != here:
            return UndecidedError(
                f"the image is for {configuration.platform}, and this machine is {here}"
            )
        confined, text = self._sandbox
        if confined is None:
            return ComponentError(text)
        if confined.confines_root:
            return None
        with self._images.tree(image) as tree:
            account = identity(configuration.config.user, tree)
        if account.uid != 0:
            return None
        return ComponentError(
            f"{confined.name} does not confine an image that runs as root; install crun or runc"
        )

    @contextmanager
    def runner(self, reference: str, devices: DeviceAccess = NO_DEVICES) -> Iterator[Run]:
        """Lay out the image once for all commands; see `Engine.runner`."""
        confined, text = self._sandbox
        if confined is None:
            raise ComponentError(text)
        image = self._images.get(reference)
        configuration = self._images.configuration(image)
        settings = configuration.config
        refused, edits = "", cdi.Edits()
        try:
            if devices.cdi:
                edits = cdi.edits(devices.cdi, cdi.FOLDERS, describe_driver())
        except cdi.NoSuchDevice as error:
            refused = str(error)
        # Mount points of devices are created in the files, and other commands must not see them.
        name = " ".join((image.digest, *edits.mounts, *edits.links, *edits.library_folders))
        lay_out = partial(self._lay_out, image, settings.user, confined)
        with self._roots.use(name, lay_out) as files:
            try:
                edits = cdi.lay_out(files.path, edits)
            except cdi.NoSuchDevice as error:
                refused = str(error)
            # Descriptions have no groups of nodes; the image's account is in none of the host's.
            groups = dict.fromkeys((*devices.groups, *edits.groups, *cdi.groups(edits)))
            variables = {
                **configuration.config.environment,
                **devices.environment,
                **edits.environment,
                "HOME": "/tmp",  # noqa: S108 - inside
            }
            if edits.library_path:
                before = filter(None, [variables.get("LD_LIBRARY_PATH")])
                variables["LD_LIBRARY_PATH"] = ":".join((*before, *edits.library_path))

            def run(command: Sequence[str], timeout_s: float) -> RunResult:
                if refused:
                    # Like Docker: nothing was started.
                    return RunResult(127, refused, timed_out=False)
                with scratch("sandbox", files.path.parent) as own:
                    job = Confined(
                        files.path,
                        files.account,
                        command,
                        variables,
                        settings.working_dir or "/",
                        {inside: Path(here) for inside, here in edits.mounts.items()},
                        replace(devices, groups=tuple(groups)),
                        edits.nodes,
                    )
                    return sandboxes.run(confined, job, own, timeout_s, self._cancelled.is_set)

            yield run

    def _lay_out(self, image: Descriptor, user: str, confined: Sandbox) -> RootFolder:
        """Lay out the files of an image on disk."""
        with ExitStack() as stack:
            with writing(self._images.folder):
                # Beside the images: temporary folders may be mounted noexec.
                folder = stack.enter_context(scratch("run", self._images.folder))
                root = folder / "root"
                root.mkdir(mode=0o755)
            with self._images.tree(image) as tree:
                account = identity(user, tree)
                unpack(tree, root, account, with_owners=confined.has_owners)
            return RootFolder(root, account, stack.pop_all())

    @contextmanager
    def export(self, reference: str) -> Iterator[Iterator[bytes]]:
        """See `Engine.export`."""
        image = self._images.get(reference)
        yield iter_archive(self._images, image, self._images.names(image))

    @cached_property
    def _reader(self) -> LayerReader:
        from buildmatrix.images.image import LayerReader

        return LayerReader(self._cache)

    def _inventory(self, image: Descriptor) -> Inventory:
        """Read an image; facts of layers are cached by digest, and shared by images."""
        from buildmatrix.images.image import LayerBlob

        blobs = [
            LayerBlob(layer.digest, layer.size, partial(self._images.blob, layer))
            for layer in self._images.manifest(image).layers
        ]
        configuration = read_configuration(self._images.configuration(image), len(blobs))
        return self._reader.inventory(configuration, blobs, FactCache(self._cache))


def _ingredients(job: BuildJob) -> Ingredients:
    if job.ingredients is None:
        raise BuildError(f"nothing says what {job.id} is made of", log=job.log)
    return job.ingredients
