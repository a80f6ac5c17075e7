"""Assembly of a target's image from its lock, its base image and its Dockerfile."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.engines.dockerfile import dockerignore
from buildmatrix.engines.instructions import DockerfileInstruction
from buildmatrix.engines.oci.additions import Accounts, context_entries
from buildmatrix.engines.oci.base_files import DEFAULT_PATH, BaseFiles, BasePython, read_layer
from buildmatrix.engines.oci.bases import BaseImage, BuiltImage, bring_layers
from buildmatrix.engines.oci.debian import DebianPackages
from buildmatrix.engines.oci.installation import InstalledFile
from buildmatrix.engines.oci.libraries import Libraries
from buildmatrix.engines.oci.recipe import (
    WITH_DOCKER,
    Account,
    Command,
    Copy,
    Environment,
    Pairs,
    Step,
    SystemPackages,
    Words,
    recipe,
)
from buildmatrix.engines.oci.store import ImageStore, made_by, with_folders, write_layer
from buildmatrix.engines.process import writing
from buildmatrix.engines.quoting import Ignored
from buildmatrix.images.documents import (
    CONFIGURATION,
    MANIFEST,
    HistoryStep,
    Manifest,
    Platform,
    RootFileSystem,
    encode,
)
from buildmatrix.images.layers import FIXED_TIME, LayerEntry, StoredLayer
from buildmatrix.locks.model import Lock
from buildmatrix.locks.status import project_packages
from buildmatrix.matrix.model import Spec, Target

#: Comment of our steps in the history.
_COMMENT: Final = "buildmatrix"


def assemble(
    spec: Spec, target: Target, lock: Lock, base: BaseImage, store: ImageStore, progress: Progress
) -> BuiltImage:
    """Assemble the image of `target` in `store`, including the blobs of the base.

    Reproducible: the same target, lock, base and sources give the same image. Several threads may
    assemble several targets: shared layers are created once.

    Raises:
        SpecError: a problem of `refusals`, or one that only the base image shows.
        UndecidedError: a wheel or the base cannot be fetched, or has another hash than in the lock.
        BuildError: the disk is full or read-only.
    """
    steps = recipe(spec, target, lock)
    if steps.problems:
        raise SpecError(steps.problems)
    assembly = _Assembly(spec, target, lock, base, store, progress)
    with writing(store.layout.folder):
        assembly.read_base()
        for step in steps.steps:
            assembly.apply(step)
        return assembly.image()


class _Assembly:
    """State of an image during assembly: layers and configuration."""

    def __init__(
        self,
        spec: Spec,
        target: Target,
        lock: Lock,
        base: BaseImage,
        store: ImageStore,
        progress: Progress,
    ) -> None:
        self._spec = spec
        self._target = target
        self._lock = lock
        self._base = base
        self._store = store
        self._progress = progress
        self._made_by = made_by()
        self._run = base.configuration.config
        self._variables = self._run.environment
        self._labels = dict(self._run.labels)
        self._history = list(base.configuration.history)
        self._layers: list[StoredLayer] = []
        self._is_command_ours = False
        self._python: BasePython | None = None
        # A constant, for reproducible images:
        # https://reproducible-builds.org/specs/source-date-epoch/.
        epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
        seconds = int(epoch) if epoch.isdecimal() and len(epoch) < 12 else FIXED_TIME
        self._created = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # The base

    def read_base(self) -> None:
        """Fetch and read the layers of the base."""
        configuration = self._base.configuration
        wanted = Platform.parse(self._target.platform)
        if not wanted.runs(configuration.platform):
            raise UndecidedError(
                f"{self._base.reference} is an image for {configuration.platform}, and the target "
                f"is for {wanted}"
            )
        if self._run.on_build:
            raise self._make_problem(
                f"the base {self._base.reference} has ONBUILD instructions, which are for a builder"
            )
        layers, notes = bring_layers(self._base, self._target.id, self._store, self._progress)
        self._layers += layers
        self._files = BaseFiles(notes)

    # Steps

    def apply(self, step: Step) -> None:
        """Apply one step."""
        if isinstance(step, Environment):
            self._add_libraries(step)
        elif isinstance(step, Account):
            self._add_account(step)
        elif isinstance(step, Copy):
            self._add_copy(step)
        elif isinstance(step, SystemPackages):
            if not self._lock.conda:
                self._check_python()
            if step.names:
                self._add_packages(step)
        elif isinstance(step, Words) and step.at.keyword == "WORKDIR":
            self._enter(step)
        elif isinstance(step, Pairs | Words | Command):
            self._configure(step)
            self._add_history(step.at, is_empty=True)

    def _check_python(self) -> None:
        path = self._variables.get("PATH", DEFAULT_PATH)
        self._python = self._files.python(self._target.python, path)
        if self._python is None:
            raise self._make_problem(
                f"the base {self._base.reference} has no python{self._target.python} on its PATH "
                f"({path}), and a builder would install it",
                "take a base that has it",
            )

    def _add_libraries(self, step: Environment) -> None:
        if not self._lock.conda:
            self._check_python()
        lock = self._lock
        if self._target.install_project:
            own = project_packages(self._spec.root, self._target)
            lock = replace(lock, packages=(*lock.packages, *own))
        libraries = Libraries(self._target, lock, self._store, self._progress)
        for origin, layer in libraries.layers(self._files, self._python).items():
            self._put(layer, step.at, origin)

    def _add_packages(self, step: SystemPackages) -> None:
        """Add Debian packages; like in Docker's cache, the same base gets the same versions."""
        below = " ".join(layer.diff_id for layer in self._layers)
        key = f"packages {self._target.platform} {step.names} {below} {self._made_by}"

        def make() -> StoredLayer:
            self._progress.step(self._target.id, f"packages {' '.join(step.names)}")
            with ExitStack() as held:
                packages = DebianPackages(self._files, self._target.platform, held)
                try:
                    files = packages.files(step.names)
                except UndecidedError as error:
                    raise self._make_problem(
                        f"the Debian packages {', '.join(step.names)} cannot be installed without "
                        f"a builder: {error.message}",
                        "take a base that has them",
                    ) from error
                # If the base has all of them, the layer is empty, and stored as well.
                return self._write(with_folders(files, self._files))

        layer = self._store.make_once(key, make)
        notes = read_layer(self._store.layout, layer.descriptor, self._store.notes)
        self._files.entries |= BaseFiles([notes]).entries
        self._put(layer, step.at, " ".join(step.names))

    def _add_account(self, step: Account) -> None:
        accounts = Accounts(self._files)
        for group in accounts.add(step.user):
            self._progress.output(
                self._target.id,
                f"The base image has no such group, so the user is not in it: {group}",
            )
        self._add(accounts.files().values(), step.at)

    def _add_copy(self, step: Copy) -> None:
        rules = Ignored(dockerignore(self._spec, self._target).splitlines())
        copied = context_entries(self._spec.root, rules, step.source, self._target.id)
        named = step.destination.value(self._variables)
        destination = self._resolve_inside(named)
        if copied[0].entry.kind != "folder":
            there = self._files.entry(destination)
            if named.endswith("/") or (there is not None and there.kind == "folder"):
                destination = posixpath.join(destination, posixpath.basename(step.source))
        files = []
        for source in copied:
            kind = source.entry.kind
            path = self._place(posixpath.join(destination, source.entry.path))
            there = self._files.entries.get(path)
            if there is not None and (there.kind == "folder") != (kind == "folder"):
                raise self._make_problem(
                    f"`{step.at.shown}`: /{path} is a {there.kind} already, and would be a {kind}"
                )
            if path and (there is None or kind != "folder"):
                files.append(source.place_at(path))
        hashes = sorted(f"{source.entry.path}\0{source.sha256}" for source in copied)
        self._add(files, step.at, "\0".join(hashes))

    def _enter(self, step: Words) -> None:
        (named,) = (word.value(self._variables) for word in step.words)
        folder = self._resolve_inside(named)
        self._run = msgspec.structs.replace(self._run, working_dir=folder)
        if self._files.entry(folder) is None:
            user, group = self._find_owner()
            path = self._place(folder)
            made = []
            while path and path not in self._files.entries:
                entry = LayerEntry(path, "folder", 0o755, user=user, group=group)
                made.append(InstalledFile(entry))
                path = posixpath.dirname(path)
            self._add(made, step.at)
        else:
            self._add_history(step.at, is_empty=True)

    def _find_owner(self) -> tuple[int, int]:
        """Return the owner of a new working folder: the last USER, as in BuildKit."""
        name, _, group = self._run.user.partition(":")
        if name == self._target.user.name:
            name = str(self._target.user.uid)
        user, group = ("0" if part in ("", "root") else part for part in (name, group or name))
        if not user.isdecimal() or not group.isdecimal():
            raise self._make_problem(
                f"its working folder would be made for the user {self._run.user}, whose number "
                "only the base knows"
            )
        return int(user), int(group)

    def _configure(self, step: Pairs | Words | Command) -> None:
        keyword = step.at.keyword
        run = self._run
        replace = partial(msgspec.structs.replace, run)
        if isinstance(step, Pairs):
            named = {name: value.value(self._variables) for name, value in step.values}
            (self._variables if keyword == "ENV" else self._labels).update(named)
        elif isinstance(step, Command):
            words = step.words
            command = (
                (*(run.shell or ("/bin/sh", "-c")), words) if isinstance(words, str) else words
            )
            if keyword == "CMD":
                self._run = replace(cmd=command)
                self._is_command_ours = True
            else:
                # Like BuildKit: the base's CMD belongs to the base's ENTRYPOINT.
                cmd = run.cmd if self._is_command_ours else ()
                self._run = replace(entrypoint=command, cmd=cmd)
        else:
            values = [word.value(self._variables) for word in step.words]
            if keyword == "USER":
                self._run = replace(user=values[0])
            elif keyword == "STOPSIGNAL":
                self._run = replace(stop_signal=" ".join(values))
            elif keyword == "VOLUME":
                self._run = replace(volumes={**run.volumes, **{value: {} for value in values}})
            else:
                ports: dict[str, object] = {
                    value if "/" in value else f"{value}/tcp": {} for value in values
                }
                self._run = replace(exposed_ports={**run.exposed_ports, **ports})

    # Layers

    def _resolve_inside(self, path: str) -> str:
        """Return an absolute path; relative ones start at the working folder."""
        joined = posixpath.join("/", self._run.working_dir, path)
        return posixpath.normpath(f"/{joined.lstrip('/')}")  # POSIX keeps two slashes

    def _place(self, path: str) -> str:
        folder, name = posixpath.split(path.rstrip("/"))
        place = self._files.resolve_new(folder)
        if place is None:
            raise self._make_problem(f"a parent of {path} is not a folder in the base image")
        return posixpath.join(place, name)

    def _add(
        self, files: Iterable[InstalledFile], at: DockerfileInstruction, contents: str = ""
    ) -> None:
        """Add a layer of `files`, or the stored one of the same files.

        `contents` identifies the bytes of files that should not be read again.
        """
        ordered = with_folders({file.entry.path: file for file in files}, self._files)
        if not ordered:
            self._add_history(at, is_empty=True)
            return
        hasher = hashlib.sha256(f"{contents}\0".encode("utf-8", "surrogateescape"))
        for file in ordered:
            hasher.update(f"{file.entry!r}\0".encode("utf-8", "surrogateescape"))
            if not contents:
                hasher.update(b"".join(file.content()))
        key = f"files {hasher.hexdigest()} {self._made_by}"
        layer = self._store.make_once(key, lambda: self._write(ordered))
        for file in ordered:
            self._files.add(file.entry)
        self._put(layer, at)

    def _write(self, files: Iterable[InstalledFile]) -> StoredLayer:
        with self._store.making:
            return write_layer(files, self._store)

    def _put(self, layer: StoredLayer, at: DockerfileInstruction, origin: str = "") -> None:
        self._layers.append(layer)
        self._add_history(at, origin)

    def _add_history(
        self, at: DockerfileInstruction, origin: str = "", *, is_empty: bool = False
    ) -> None:
        """Add a step to the history, in the format of BuildKit."""
        command = f"/bin/sh -c {at.text}" if at.keyword == "RUN" else at.text
        text = f"{at.keyword} {command}"
        if at.keyword in ("RUN", "COPY"):
            text += f" # {_COMMENT}" + f" {origin}" * bool(origin)
        self._history.append(
            HistoryStep(
                created=self._created, created_by=text, comment=_COMMENT, empty_layer=is_empty
            )
        )

    # The image

    def image(self) -> BuiltImage:
        """Write configuration and manifest."""
        layout = self._store.layout
        base = self._base.configuration
        configuration = msgspec.structs.replace(
            base,
            config=msgspec.structs.replace(
                self._run,
                env=tuple(f"{name}={value}" for name, value in self._variables.items()),
                labels=self._labels,
            ),
            rootfs=RootFileSystem(diff_ids=tuple(layer.diff_id for layer in self._layers)),
            history=tuple(self._history),
            created=self._created,
            author="",
        )
        manifest = Manifest(
            schema_version=2,
            media_type=MANIFEST,
            config=layout.put(encode(configuration), CONFIGURATION),
            layers=tuple(layer.descriptor for layer in self._layers),
            # See the OCI image specification, annotations.md.
            annotations={
                "org.opencontainers.image.base.name": self._base.reference.partition("@")[0],
                "org.opencontainers.image.base.digest": self._base.descriptor.digest,
            },
        )
        image = msgspec.structs.replace(
            layout.put(encode(manifest), MANIFEST), platform=configuration.platform
        )
        taken = (self._base.reference, self._base.descriptor.digest)
        return BuiltImage(image, manifest, configuration, tuple(self._layers), taken)

    def _make_problem(self, message: str, hint: str = "") -> SpecError:
        way = f"{hint}, or {WITH_DOCKER}" if hint else WITH_DOCKER
        return SpecError([Problem(f"{self._target.id}: {message}", str(self._spec.path), hint=way)])
