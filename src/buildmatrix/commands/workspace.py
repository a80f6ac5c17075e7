"""Settings that all calls share, and the result of a call."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import EXIT_OK, ComponentError, UsageError
from buildmatrix.base.progress import Progress, Silent
from buildmatrix.base.text import safe
from buildmatrix.engines import AUTO, choose_builder, choose_image_engine
from buildmatrix.reports.formats import Destination, Format, find_format, names, time_of_writing

if TYPE_CHECKING:
    from buildmatrix.engines.model import Engine
    from buildmatrix.facts.inventory.workers import Watch
    from buildmatrix.images.store.cache import Cache
    from buildmatrix.images.store.facts import FactCache
    from buildmatrix.judge.advisories import AdvisoryOptions
    from buildmatrix.locks.index.client import Client
    from buildmatrix.locks.index.ranges import RemoteFile
    from buildmatrix.locks.index.wheels import WheelReader
    from buildmatrix.matrix.model import Spec
    from buildmatrix.net.registry_client import Registry
    from buildmatrix.sources.model import Command, ReadingOptions, Source


Document = TypeVar("Document", covariant=True)


@dataclass(frozen=True, slots=True)
class CommandResult(Generic[Document]):
    """Result of a command.

    Attributes:
        document: the data, whose keys `docs/contract.md` lists.
        exit_code: what the command line would end with: 0 where nothing fails, 1 for findings, 3
            for what is undecided, and so on.
        formats: what the document can be rendered as.
        root: the folder that paths in the document start from; None where it holds none.
    """

    document: Document
    exit_code: int
    formats: Sequence[Format]
    root: Path | None = None

    @property
    def ok(self) -> bool:
        """True if a CI step with this result is green."""
        return self.exit_code == EXIT_OK

    def render(self, format: str = "json", *, width: int = 100, every: bool = False) -> str:
        """The document as text, for a file or another program: no colors.

        `format` is a name that `--format` of the command takes, `width` the columns of a table,
        `every` lists everything, however long. Text of strangers in it is made safe for terminals
        and CI logs. Raises `UsageError` for a format that the document does not have.
        `data` returns formats that are not text, such as `parquet`.
        """
        form = self._format(format)
        if form.syntax.binary:
            raise UsageError(f"the format {format} is not text; use `data`")
        to = Destination(
            width=width, every=every, exit_code=self.exit_code, time=time_of_writing()
        ).below(self.root)
        return safe(form.render(self.document, to), form.syntax)

    def data(self, format: str = "json") -> bytes:
        """The document as the bytes of a file, in any of its formats.

        Raises what `render` raises, and `ComponentError` where a package is missing that the format
        needs.
        """
        form = self._format(format)
        if form.lacks:
            raise ComponentError(form.lacks)
        if not form.syntax.binary:
            return self.render(format).encode()
        return form.data(self.document, Destination())

    def _format(self, name: str) -> Format:
        if name not in names(self.formats):
            raise UsageError(f"there is no format {name!r}; use {', '.join(names(self.formats))}")
        return find_format(self.formats, name)


# The settings of a machine


#: Seconds before progress is shown.
_PATIENCE = 1.0
#: How much a line of the log matters: `warning` always, `info` says what takes long.
Level = Literal["warning", "info", "debug"]
Log = Callable[[Level, str], None]


def _to_logging(level: Level, text: str) -> None:
    logging.getLogger("buildmatrix").log(logging.getLevelNamesMapping()[level.upper()], "%s", text)


#: Facts of what never changes: wheels, source distributions, layers and images. Not shared are
#: answers of indexes, which may be private, and what depends on this machine.
_SHARED_KINDS = frozenset({"facts", "layers", "python", "sources", "tables", "wheels"})


def _silent() -> AbstractContextManager[Progress]:
    return nullcontext(Silent())


class Workspace(Struct, frozen=True):
    """A project on this machine, as all calls see it.

    Attributes:
        specification: the file of the specification, which need not exist.
        engine: who builds and has images: `auto`, `docker` or `oci`.
        cache: whether what was read before is used, and kept.
        offline: whether nothing but caches is asked.
        store: folder or fsspec URL of facts that are shared with other machines; empty for none.
        progress: opens a display of what is done; one that shows nothing by default. Beside a
            display with threads, one process reads a folder, not all processors.
        log: takes what is to be said beside results; the logger `buildmatrix` by default. It is
            called from several threads.
    """

    specification: Path = Path("buildmatrix.toml")
    engine: str = AUTO
    cache: bool = True
    offline: bool = False
    store: str = ""
    progress: Callable[[], AbstractContextManager[Progress]] = _silent
    log: Log = _to_logging

    def load(self, path: Path | None = None) -> Spec:
        """The specification (or that in `path`), checked against what the catalogue knows."""
        from buildmatrix.catalogue.load import load as load_catalogue
        from buildmatrix.matrix.load import load_spec

        file = path or self.specification
        return load_spec(file, backends=lambda files: load_catalogue(files).backends)

    def declared(self) -> Callable[[], Spec | None]:
        """Loads the specification once, when it is needed; None where there is no such file."""
        return functools.cache(lambda: self.load() if self.specification.is_file() else None)

    def parse(
        self, source: str | os.PathLike[str], command: Command, spec: Callable[[], Spec | None]
    ) -> Source:
        """Parse SOURCE for a command. Raises `UsageError`."""
        from buildmatrix.sources.model import Argument
        from buildmatrix.sources.parse import parse

        argument = Argument(os.fspath(source), command, specification=self.specification, spec=spec)
        return parse(argument)

    def data_files(self) -> tuple[Path, ...]:
        """The user's own data files for the catalogue, for a SOURCE that is not a target."""
        from buildmatrix.matrix.settings import read_data_files

        return read_data_files(self.specification)

    def user_cache(self) -> Cache:
        """The cache of this user; one that keeps nothing where it is not wanted."""
        from buildmatrix.images.store.cache import Cache, default_folder

        if not self.cache:
            return Cache(None)
        return _cache_in(default_folder(os.environ), self.log, self.store)

    def fact_cache(self) -> FactCache | None:
        """The cache of facts of this user; None where it is not wanted."""
        from buildmatrix.images.store.facts import FactCache
        from buildmatrix.sources.state_folder import seal

        return FactCache(self.user_cache(), key=seal(b"bytes of files")) if self.cache else None

    def builder(self, name: str | None = None, buildx: str | None = None) -> Engine:
        """Return the engine that builds: the one of that name, or the one that this machine has."""
        return choose_builder(name or self.engine, buildx, self._own_engine, self.log)

    def image_engine(self, name: str | None = None) -> Engine:
        """Return the engine whose images are read."""
        from buildmatrix.sources.state_folder import images_folder

        folder = images_folder(self.specification)
        return choose_image_engine(name or self.engine, self._own_engine, folder)

    def registry(self) -> Registry:
        """Return the reader of images in registries, with the mirrors that this machine's settings
        name.
        """
        from buildmatrix.net.registry_client import Registry
        from buildmatrix.net.registry_mirrors import Mirrors

        return Registry(
            offline=self.offline,
            mirrors=Mirrors(os.environ),
            note=lambda text: self.log("debug", text),
        )

    @contextmanager
    def wheels(self) -> Iterator[WheelReader]:
        """Reads wheels on an index; what was read before is known from the cache."""
        from buildmatrix.locks.index.wheels import WheelReader

        kept = self.user_cache()
        with ExitStack() as stack:

            def client() -> Client:
                from buildmatrix.locks.index.client import Client

                return stack.enter_context(Client(offline=self.offline, cache=kept))

            yield WheelReader(_LateClient(client), kept)

    @contextmanager
    def reading(
        self, *, platform: str | None = None, deep: bool = False, python: str | None = None
    ) -> Iterator[ReadingOptions]:
        """Yield the settings for reading a SOURCE; everything it opens is closed at the end."""
        from buildmatrix.sources.model import OnlineIndex, ReadingOptions

        with ExitStack() as stack:

            @functools.cache
            def progress() -> Progress:
                return stack.enter_context(self.progress())

            @functools.cache
            def index() -> OnlineIndex:
                reader = stack.enter_context(self.wheels())
                return OnlineIndex(
                    reader, progress(), self.user_cache(), self.offline, deep, python
                )

            @functools.cache
            def registry() -> Registry:
                return stack.enter_context(self.registry())

            yield ReadingOptions(
                self.image_engine,
                platform=platform,
                cache=self.fact_cache,
                index=index,
                registry=registry,
                data_files=self.data_files,
                note=self._note,
                progress=progress,
                counting=self.counting,
                engine_named=self.builder,
            )

    @contextmanager
    def counting(self, label: str, unit: str) -> Iterator[Watch]:
        """Show the progress of work that takes longer than `_PATIENCE`."""
        started = time.monotonic()
        with ExitStack() as stack:

            @functools.cache
            def display() -> Progress:
                return stack.enter_context(self.progress())

            def watch(done: int, total: int) -> None:
                if time.monotonic() - started >= _PATIENCE:
                    display().part(label, done, total, unit)

            yield watch

    def advisories(self, wanted: bool) -> AdvisoryOptions | None:
        """Return the settings for known vulnerabilities; None to skip them."""
        from buildmatrix.judge.advisories import AdvisoryOptions

        return AdvisoryOptions(self.offline, self.user_cache()) if wanted else None

    def _note(self, text: str) -> None:
        self.log("info", text)

    def _own_engine(self) -> Engine:
        from buildmatrix.engines.oci.engine import OciEngine
        from buildmatrix.engines.oci.store import ImageStore
        from buildmatrix.images.store.cache import default_folder
        from buildmatrix.sources.state_folder import images_folder

        # Built layers are kept even if the cache is not to be read.
        shared = self.store if self.cache else ""
        kept = _cache_in(default_folder(os.environ), self.log, shared)
        store = ImageStore(default_folder(os.environ) / "images", kept)
        registry = replace(self, offline=False).registry()
        return OciEngine(images_folder(self.specification), store, kept, registry)


@functools.cache
def _cache_in(folder: Path, log: Log, store: str = "") -> Cache:
    """Return one cache for all calls, so that its problems are reported once.

    Raises `UsageError` for an invalid store, and `ComponentError` for a missing driver.
    """
    from buildmatrix.images.store.cache import Cache

    shared = None
    if store:
        from buildmatrix.images.store.shared import SharedEntries, open_storage

        shared = SharedEntries(open_storage(store), store, lambda text: log("warning", text))
    return Cache(
        folder,
        lambda text: log("warning", f"{text} (set BUILDMATRIX_CACHE to another folder)"),
        shared,
        shared_kinds=_SHARED_KINDS,
    )


class _LateClient:
    """A client that is made when a first file is asked for: often everything is known."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._client: Client | None = None

    def open(self, url: str, size: int | None = None) -> RemoteFile:
        """See `Client.open`."""
        with self._lock:
            if self._client is None:
                self._client = self._make()
        return self._client.open(url, size)
