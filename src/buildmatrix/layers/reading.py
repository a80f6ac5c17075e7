"""One layer, read while its bytes pass by, once, and not unpacked to disk.

Formats: OCI image specification 1.1, "Image Layer Filesystem Changeset"; tar plain, in gzip or in
Zstandard. A binary that has to be read in another order than it lies passes through an unnamed
temporary file (`trees.inflating.Inflated`), one at a time.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import msgspec

from buildmatrix.inventory.file_facts import ELF_MAGIC, FileFacts, add_contents, inspect_source
from buildmatrix.inventory.nested import (
    LARGEST_STREAM,
    MOST_CONTAINERS,
    MOST_STREAMED,
    NestedContents,
    stream_cost,
)
from buildmatrix.inventory.own_files import is_content_read
from buildmatrix.layers.ahead import Ahead
from buildmatrix.layers.model import KINDS, EntryFacts, KeptFiles, LayerFacts, packed_entries
from buildmatrix.trees.archive import CHUNK, Slice, inflated
from buildmatrix.trees.archive_layers import MOST_ENTRIES, at_most
from buildmatrix.trees.base import RandomAccess, Unreadable, defect, reason
from buildmatrix.trees.containers import Format
from buildmatrix.trees.forward import ENDLESS, ForwardSource
from buildmatrix.trees.inflating import Inflated
from buildmatrix.trees.tar import TarMember, members

#: Bytes of compressed archives in one layer that are opened: `MOST_STREAMED` of one tree are, the
#: smallest first, and which those are is known when all layers are.
_MOST_STREAMED = 4 * MOST_STREAMED
#: Bytes of one file that is kept because it was asked for.
LARGEST_ASKED_FOR = 64 << 20
#: What only this machine is to blame for: it is tried again the next time.
_PASSING = tuple(
    os.strerror(number).lower()
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)


def read_layer(
    chunks: Iterable[bytes],
    size: int,
    digest: str = "",
    also: Collection[int] = frozenset(),
    *,
    names_only: bool = False,
    room: int = MOST_ENTRIES,
) -> LayerFacts:
    """The facts of the layer whose bytes, `size` of them and maybe compressed, `chunks` are.

    All of them are taken, and held against their `digest` where there is one. The bytes of the
    files among the entries `also` are kept as well; with `names_only`, no file is looked at. Beside
    those of the other layers, the image may have `room` more entries. Raises `Unreadable` for what
    is no layer, or damaged, or another one, and what `chunks` raises.
    """
    algorithm = digest.partition(":")[0] or "sha256"
    incoming = _Passing(chunks, algorithm)
    plain = _Passing(inflated(Slice(ForwardSource(incoming), 0, size)), "sha256")
    reader = _LayerReader(plain, also, names_only)
    ahead = Ahead(plain)
    entries = reader.entries(at_most(room, members(Slice(ForwardSource(ahead), 0, ENDLESS))))
    try:
        packed = tuple(packed_entries(entries))
        for _ in ahead:
            pass  # Behind the last entry there are zeros, and the checksum of the whole.
    except Unreadable:
        plain.raise_failure()
        raise
    finally:
        ahead.close()
    for _ in incoming:
        pass
    if incoming.size != size:
        raise Unreadable(f"it has {incoming.size} bytes, and {size} were announced")
    if digest and incoming.digest != digest:
        raise Unreadable(f"it is damaged: its bytes have the digest {incoming.digest}")
    reader.kept.finish()
    return LayerFacts(
        digest=plain.digest,
        blob=incoming.digest,
        size=size,
        entries=packed,
        count=reader.count,
        kept=tuple(reader.kept.blocks),
        is_final=reader.is_final,
    )


class _Passing:
    """Chunks as they pass by: how many bytes, their digest, and what made them end early."""

    def __init__(self, chunks: Iterable[bytes], algorithm: str) -> None:
        self._chunks = iter(chunks)
        self._algorithm = algorithm
        self._hasher = hashlib.new(algorithm)
        self.size = 0
        self._failure: Exception | None = None

    @property
    def digest(self) -> str:
        """Of what has passed."""
        return f"{self._algorithm}:{self._hasher.hexdigest()}"

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            raise
        except Exception as error:
            # Who looks at one file takes it for trouble of that file.
            self._failure = error
            raise
        self.size += len(chunk)
        self._hasher.update(chunk)
        return chunk

    def raise_failure(self) -> None:
        """Raise what made the chunks end early."""
        if self._failure is not None:
            raise self._failure


class _LayerReader:
    """Looks at one entry after the other."""

    def __init__(self, passing: _Passing, also: Collection[int], names_only: bool) -> None:
        self._passing = passing
        self._names_only = names_only
        self._also = also
        self.kept = KeptFiles()
        self.count = 0
        self.is_final = True
        self._opened = 0
        self._streamed = 0

    def entries(self, members: Iterable[TarMember]) -> Iterator[EntryFacts]:
        """What is known of each entry."""
        for self.count, member in enumerate(members, 1):
            entry = EntryFacts(
                KINDS.index(member.kind),
                # A NUL in a name would be a lie: tar's own names end at one.
                os.fsencode(member.name),
                os.fsencode(member.target),
            )
            if member.data is not None and self._names_only:
                entry = msgspec.structs.replace(entry, size=member.data.size)
            elif member.data is not None:
                entry = self._file(entry, member.name, member.data)
            yield entry

    def _file(self, entry: EntryFacts, name: str, data: Slice) -> EntryFacts:
        stream = _HashedFile(data)
        is_asked_for = self.count - 1 in self._also and data.size <= LARGEST_ASKED_FOR
        is_kept = is_asked_for or (not self.kept.is_full and is_content_read(name, data.size))
        place = None
        with Inflated(stream, data.size) as source:
            facts = self._looked_at(source, name, data.size)
            self._passing.raise_failure()
            if is_kept:
                place = self.kept.add(name, source.read(0, data.size))
        stream.finish()
        self._passing.raise_failure()
        if facts.unread is not None or facts.contents is not None:
            self.is_final = self.is_final and not _is_passing(facts)
        return msgspec.structs.replace(
            entry,
            size=data.size,
            sha256=stream.hasher.digest(),
            place=place,
            facts=None if facts == _NOTHING else facts,
        )

    def _looked_at(self, source: RandomAccess, name: str, size: int) -> FileFacts:
        """What a file is; as `collect` would see it, for its containers see `_contents`."""
        if size < len(ELF_MAGIC):
            return _NOTHING
        try:
            facts = inspect_source(source, name, size)
            if facts.contents is not None and (format := facts.contents.waiting) is not None:
                facts = self._contents(facts, source, name, size, format)
        except OSError as error:
            facts = FileFacts(unread=reason(error))
        except Exception as error:
            facts = FileFacts(unread=defect(error))
        return replace(facts, bytes_read=0)

    def _contents(
        self, facts: FileFacts, source: RandomAccess, name: str, size: int, format: Format
    ) -> FileFacts:
        """`facts` with what the file holds; whether that counts is decided for the whole image."""
        cost = stream_cost(format, size)
        if cost > LARGEST_STREAM:
            return facts  # No tree opens it.
        if self._opened == MOST_CONTAINERS or self._streamed + cost > _MOST_STREAMED:
            contents = NestedContents(
                format, closed=f"only {_MOST_STREAMED} bytes of archives are read in one layer"
            )
        else:
            self._opened += 1
            self._streamed += cost
            opened = add_contents(facts, source, name, size).contents
            assert opened is not None
            contents = opened
        return replace(facts, contents=replace(contents, waiting=format, is_ahead=True))


class _HashedFile:
    """The bytes of a file from its start to its end, hashed."""

    def __init__(self, data: Slice) -> None:
        self._data = data
        self._at = 0
        self.hasher = hashlib.sha256()

    def read(self, length: int) -> bytes:
        """See `trees.inflating.Inflating`."""
        data = self._data.read(self._at, min(length, CHUNK))
        self._at += len(data)
        self.hasher.update(data)
        return data

    def finish(self) -> None:
        """Let the rest pass by."""
        while self.read(CHUNK):
            pass


_NOTHING = FileFacts()


def _is_passing(facts: FileFacts) -> bool:
    """Whether something was not read for a reason that another time may not have."""
    why = f"{facts.unread or ''} {(facts.contents and facts.contents.closed) or ''}"
    return any(text in why for text in _PASSING)
