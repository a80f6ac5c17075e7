"""What a process keeps for all tasks of a run: connections, the store, the catalogue."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from buildmatrix.catalogue.load import Catalogue, load_texts
from buildmatrix.commands.fleet.answers import KeptResults
from buildmatrix.commands.fleet.model import WorkerSettings
from buildmatrix.commands.fleet.stacks import Stacks
from buildmatrix.errors import BuildmatrixError, UndecidedError
from buildmatrix.http.failures import RequestError
from buildmatrix.http.patience import Patience
from buildmatrix.oci.documents import MAX_DOCUMENT, Descriptor
from buildmatrix.registry.client import Registry
from buildmatrix.registry.manifests import ManifestBytes
from buildmatrix.registry.mirrors import Mirrors
from buildmatrix.registry.reference import Reference
from buildmatrix.store.cache import DAY, Cache, default_folder
from buildmatrix.store.shared import SharedEntries, open_storage
from buildmatrix.threads import prepare_type

Answer = TypeVar("Answer")
#: Bytes of the documents of all images in the folder of one machine.
DOCUMENTS_LIMIT = 500_000_000
#: Runs that a process may work for at once; what a further one needs replaces that of the first.
MOST_CONTEXTS = 4
#: Answers of a registry to credentials that are no good, maybe any more.
_DENIED = (401, 403)
#: Seconds for which credentials that were refused are not read again.
_FRESH = 10.0
_MANIFEST = msgspec.msgpack.Decoder(prepare_type(ManifestBytes))


class WorkerContext:
    """What one process needs for the tasks of one run; for all of its threads at once."""

    def __init__(self, settings: WorkerSettings, patience: Patience | None = None) -> None:
        self.settings = settings
        self._patience = patience
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._unsaid: list[str] = []
        self._registry: Registry | None = None
        self._since = 0.0
        self._catalogue: Catalogue | None = None
        #: The folder of this machine, and behind it the store that all workers share.
        self.cache = self._cache()
        #: Manifests and configurations, from the store where it has them.
        self.documents = KeptDocuments(self)
        self.stacks = Stacks(self.cache)
        self.results = KeptResults(self.cache)

    def _cache(self) -> Cache:
        shared = None
        if url := self.settings.store:
            try:
                shared = SharedEntries(open_storage(url), url, self.note)
            except BuildmatrixError as error:
                self.note(error.message)
        return Cache(default_folder(os.environ), self.note, shared)

    def note(self, text: str) -> None:
        """Remember what the user has to know beside results; each text once per process."""
        with self._lock:
            if text not in self._said:
                self._said.add(text)
                self._unsaid.append(text)

    def notes(self) -> tuple[str, ...]:
        """What was noted since the last call."""
        with self._lock:
            unsaid = tuple(self._unsaid)
            self._unsaid.clear()
        return unsaid

    @property
    def catalogue(self) -> Catalogue:
        """Vendor data, with that of the user. Raises `SpecError`."""
        with self._lock:
            if self._catalogue is None:
                self._catalogue = load_texts(self.settings.data_files)
            return self._catalogue

    # Registries

    @property
    def registry(self) -> Registry:
        """What asks registries."""
        with self._lock:
            if self._registry is None:
                self._registry = Registry(mirrors=Mirrors(os.environ), patience=self._patience)
                self._since = time.monotonic()
            return self._registry

    def asked(self, work: Callable[[], Answer]) -> Answer:
        """What `work` returns, which asks a registry.

        Credentials may have run out since they were read: they are read again, and it is called
        again.
        """
        try:
            return work()
        except RequestError as error:
            if error.status not in _DENIED or not self._renewed():
                raise
        return work()

    def _renewed(self) -> bool:
        """Forget credentials and tokens, unless they were read a moment ago."""
        with self._lock:
            if self._registry is None or time.monotonic() - self._since < _FRESH:
                return False
            self._registry = None  # Others may still read from it: it ends with the last of them.
        return True

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._registry is not None:
                self._registry.close()
                self._registry = None


class KeptDocuments:
    """A `DocumentSource`: what a digest names never changes, and is asked for once by anybody.

    Unless it `asks` a registry, what nobody has asked for raises `UndecidedError`.
    """

    def __init__(self, context: WorkerContext, *, asks: bool = True) -> None:
        self._context = context
        self._asks = asks
        self._store = context.cache.store(
            "documents", "1", limit=DOCUMENTS_LIMIT, age=90 * DAY, by_use=True
        )

    def manifest(self, reference: Reference) -> ManifestBytes:
        """See `Registry.manifest`; `reference` has a digest."""
        key = f"manifest {reference.digest}"
        manifest = self._store.load(key, _MANIFEST)
        if manifest is None:
            manifest = self._asked(reference, lambda: self._context.registry.manifest(reference))
            self._store.save(key, manifest)
        return manifest

    @contextmanager
    def blob(self, reference: Reference, descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        """See `Registry.blob`; of documents alone."""
        key = f"blob {descriptor.digest}"
        data = self._store.get(key)
        if data is None or len(data) != descriptor.size:
            data = self._asked(reference, lambda: self._read(reference, descriptor))
            self._store.put(key, data)
        yield iter((data,))

    def _asked(self, reference: Reference, work: Callable[[], Answer]) -> Answer:
        if not self._asks:
            raise UndecidedError(f"{reference}: nobody has asked for its documents yet")
        return self._context.asked(work)

    def _read(self, reference: Reference, descriptor: Descriptor) -> bytes:
        assert descriptor.size <= MAX_DOCUMENT
        with self._context.registry.blob(reference, descriptor) as chunks:
            return b"".join(chunks)


_contexts: dict[bytes, WorkerContext] = {}
_lock = threading.Lock()


def context_of(settings: WorkerSettings) -> WorkerContext:
    """The context of this process for these settings, made when it is first needed."""
    key = b"%d %s" % (os.getpid(), msgspec.msgpack.encode(settings))
    with _lock:
        context = _contexts.get(key)
        if context is None:
            while len(_contexts) >= MOST_CONTEXTS:
                _contexts.pop(next(iter(_contexts)))
            context = _contexts[key] = WorkerContext(settings)
        return context


def close() -> None:
    """Close what this process has open."""
    with _lock:
        for context in _contexts.values():
            context.close()
        _contexts.clear()


atexit.register(close)
