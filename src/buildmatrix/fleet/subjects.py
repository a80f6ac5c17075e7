"""Images of a fleet from registries, files and clusters, without duplicates.

    registry:HOST/NAME[:TAG]   images of a registry; NAME and TAG may be globs
    file:images.txt            a list of references         `reference_lists`
    pods:pods.json             images run by a cluster      `pods`

`*` matches slashes, too: `registry:HOST/team/*` is everything below `team/`. Without a tag, all
tags are included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.base.parsing import natural
from buildmatrix.base.progress import Progress, Silent
from buildmatrix.base.text import count, listing, printable
from buildmatrix.base.threads import Crew
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import matches
from buildmatrix.fleet import pods, reference_lists
from buildmatrix.fleet.model import Subject
from buildmatrix.fleet.reference_lists import (
    SubjectList,
    SubjectSettings,
    is_excluded,
    make_sentence,
    merge_subjects,
    normalize_reference,
)
from buildmatrix.images import documents
from buildmatrix.images.documents import choose, images_in
from buildmatrix.net.addresses import RequestError
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference, is_host, is_repository, is_tag, split_host


class ListedNames(Struct, frozen=True):
    """The names in a list, as far as received."""

    names: tuple[str, ...]
    #: Why the rest is missing; None for a complete list.
    error: UndecidedError | None = None


class RegistryLists:
    """Lists of all registries; no list is requested by two threads at once."""

    def __init__(self, registry: Callable[[], Registry], progress: Progress) -> None:
        self._registry = registry
        self._progress = progress
        self._lists: dict[Hashable, ListedNames] = {}

    @property
    def registry(self) -> Registry:
        """Registry client."""
        return self._registry()

    def repositories(self, host: str) -> ListedNames:
        """Return the names of all repositories of a registry."""
        if host not in self._lists:
            self._progress.note(f"asking {host} for its repositories")
        return self._request(host, lambda: self.registry.repositories(host))

    def tags(self, reference: Reference) -> ListedNames:
        """Return the tags of a repository."""
        return self._request(reference, lambda: self.registry.tags(reference))

    def _request(self, key: Hashable, ask: Callable[[], Iterator[str]]) -> ListedNames:
        listed = self._lists.get(key)
        if listed is None:
            names: list[str] = []
            error: UndecidedError | None = None
            try:
                names += ask()
            except UndecidedError as failure:
                error = failure
            listed = self._lists[key] = ListedNames(tuple(names), error)
        return listed


#: Repositories of one source, and tags of one repository.
MOST_REPOSITORIES = 100_000
MOST_TAGS = 10_000
#: Tags per repository whose creation time is requested, with two requests each.
MOST_DATED = 100
#: Statuses of registries without a list of repositories, or with a protected one.
_NO_CATALOG = (400, 404, 405, 501)
_DENIED = (401, 403)
#: Tags for attachments of cosign and of registries without referrers: `sha256-....sig`.
_ATTACHED = re.compile(r"sha(?:256|512)-[0-9a-f]{64,128}(?:\..*)?")
_WILDCARD = re.compile(r"[*?\[]")
_LONGEST_AGO = datetime.min.replace(tzinfo=UTC)


class _ParsedSource(Struct, frozen=True):
    """A parsed source."""

    source: str
    host: str
    repository: str
    tag: str


class _RepositoryTags(Struct, frozen=True):
    """Tags of one repository."""

    tags: tuple[str, ...] = ()
    #: Missing part, with the reason.
    missing: str = ""
    #: Number of tags that are not images; True if there were too many tags to date.
    others: int = 0
    is_undated: bool = False


def read_registry(
    name: str, settings: SubjectSettings, lists: RegistryLists, progress: Progress
) -> SubjectList:
    """List the images that match `name`, the text after `registry:`. Raises `UsageError`."""
    wanted = _parse(name)
    if isinstance(wanted, str):
        return SubjectList(subjects=(Subject(reference=wanted, places=(f"registry:{name}",)),))
    missing: list[str] = []
    repositories = [wanted.repository]
    if _WILDCARD.search(wanted.repository):
        repositories = sorted(_list_repositories(wanted, settings, lists, missing))
        if not repositories and not missing:
            missing.append(f"{wanted.source}: {wanted.host} has no repository of this name")
    crew = Crew(partial(_list_tags, wanted, settings, lists), settings.jobs, "buildmatrix-tags")
    found: dict[str, _RepositoryTags] = {}
    for repository, tags in crew.answers(repositories):
        found[repository] = tags
        progress.part("fleet", len(found), len(repositories), "repositories")
    subjects = [
        Subject(
            reference=f"{Reference(wanted.host, repository).name}:{tag}", places=(wanted.source,)
        )
        for repository in repositories
        for tag in found[repository].tags
    ]
    missing += [found[name].missing for name in repositories if found[name].missing]
    return SubjectList(
        subjects=tuple(subjects),
        missing=tuple(missing),
        notes=tuple(_describe_omissions(wanted, settings, found)),
    )


def _parse(name: str) -> _ParsedSource | str:
    """Parse a source, or the reference of a single image. Raises `UsageError`."""
    source = f"registry:{printable(name)}"
    host, path = split_host(name)
    first = name.partition(":")[0]
    if "/" not in name and ("." in first or first == "localhost"):
        raise UsageError(f"{source} is a whole registry; write {source}/* for all that it has")
    if not _WILDCARD.search(name) and ("@" in name or (":" in path and not path.endswith(":"))):
        try:
            return normalize_reference(name)
        except UndecidedError as error:
            raise UsageError(error.message) from error
    repository, _, tag = path.partition(":")
    if not repository or repository.endswith("/"):
        repository += "*"
    plain = _WILDCARD.sub("", repository)
    if not is_host(host) or "@" in name or plain.lower() != plain or ":" in tag:
        raise UsageError(
            f"{source} names no images of a registry; write registry:HOST/NAME[:TAG], where NAME "
            "and TAG may be patterns: registry:HOST/team/*:cuda-*"
        )
    if not _WILDCARD.search(repository):
        try:
            repository = Reference.parse(f"{host}/{repository}").repository
        except UndecidedError as error:
            raise UsageError(error.message) from error
    return _ParsedSource(source, host, repository, tag or "*")


def _list_repositories(
    wanted: _ParsedSource, settings: SubjectSettings, lists: RegistryLists, missing: list[str]
) -> set[str]:
    fitting: set[str] = set()
    strange = 0
    listed = lists.repositories(wanted.host)
    for name in listed.names:
        if not is_repository(name):
            strange += 1
        elif matches(wanted.repository, name) and not is_excluded(
            f"{wanted.host}/{name}", settings.exclude
        ):
            if len(fitting) == MOST_REPOSITORIES:
                missing.append(
                    f"{wanted.source}: {wanted.host} has more than {MOST_REPOSITORIES:,} such "
                    "repositories, and the rest was not looked at; name fewer"
                )
                break
            fitting.add(name)
    if listed.error is not None:
        missing.append(_explain_missing_catalog(wanted.host, listed.error))
    if strange:
        missing.append(f"{wanted.host} lists {count(strange, 'name')} that cannot be a repository")
    return fitting


def _explain_missing_catalog(host: str, error: UndecidedError) -> str:
    """Explain why the list of repositories is missing, with alternatives."""
    status = error.status if isinstance(error, RequestError) else None
    advice = (
        f"name repositories without a pattern (registry:{host}/NAME), or the images in a file "
        "(file:images.txt)"
    )
    if status in _NO_CATALOG:
        return f"{host} does not list its repositories ({status}); {advice}"
    if status in _DENIED:
        return f"{make_sentence(error)}; many give this list to administrators alone: {advice}"
    return make_sentence(error)


def _list_tags(
    wanted: _ParsedSource, settings: SubjectSettings, lists: RegistryLists, repository: str
) -> _RepositoryTags:
    reference = Reference(wanted.host, repository)
    tags: list[str] = []
    strange = others = 0
    listed = lists.tags(reference)
    for tag in listed.names:
        if not is_tag(tag):
            strange += 1
        elif not matches(wanted.tag, tag):
            continue
        elif _ATTACHED.fullmatch(tag):
            others += 1
        elif not is_excluded(f"{reference.name}:{tag}", settings.exclude):
            tags.append(tag)
    if (error := listed.error) is not None:
        # distribution's catalog keeps repositories after their last tag was deleted.
        is_empty = isinstance(error, RequestError) and error.status == 404
        if not is_empty or not _WILDCARD.search(wanted.repository):
            return _RepositoryTags(tuple(sorted(tags)), make_sentence(error), others)
    missing = ""
    if strange:
        missing = f"{reference.name}: {count(strange, 'name')} in its list cannot be a tag"
    tags.sort(key=natural)
    is_undated = False
    if settings.newest:
        is_undated = len(tags) > MOST_DATED
        tags, artifacts = _select_newest(lists.registry, reference, tags[-MOST_DATED:], settings)
        others += artifacts
    elif len(tags) > MOST_TAGS:
        missing = (
            f"{reference.name} has {len(tags):,} such tags, and {MOST_TAGS:,} of them were taken; "
            "take fewer with a pattern or with --newest"
        )
        tags = tags[-MOST_TAGS:]
    return _RepositoryTags(tuple(tags), missing, others, is_undated)


def _select_newest(
    registry: Registry, reference: Reference, tags: Sequence[str], settings: SubjectSettings
) -> tuple[list[str], int]:
    """Return the tags of the newest images, and the number of tags that are not images.

    An image that cannot be dated is kept; judging it reports the reason.
    """
    ages: dict[str, datetime] = {}
    digests: dict[str, list[str]] = {}
    kept: list[str] = []
    artifacts = 0
    for tag in tags:
        try:
            pinned = reference.at(registry.resolve(reference.with_tag(tag)).digest)
            if pinned.digest not in digests:
                created = _read_creation_time(registry, pinned, settings.platform)
                if created is None:
                    artifacts += 1
                    continue
                ages[pinned.digest] = created
        except UndecidedError:
            kept.append(tag)
            continue
        digests.setdefault(pinned.digest, []).append(tag)
    # Reproducible builds have the same date; then the later name counts as newer.
    order = {digest: number for number, digest in enumerate(digests)}
    newest = sorted(digests, key=lambda digest: (ages[digest], order[digest]))[-settings.newest :]
    return sorted([*kept, *(tag for digest in newest for tag in digests[digest])]), artifacts


def _read_creation_time(registry: Registry, image: Reference, platform: str) -> datetime | None:
    """Return the creation time in an image; None if not an image. Raises UndecidedError."""
    document = registry.manifest(image)
    where = str(image)
    if documents.media_type_of(document.data, where) in documents.INDEXES:
        index = documents.index_of(document.data, where)
        entry = None
        with suppress(UndecidedError):  # judging the image reports it
            entry = choose(index.manifests, documents.Platform.parse(platform), where)
        entry = entry or next(iter(images_in(index.manifests)), None)
        if entry is None:
            return None
        image = image.at(entry.digest)
        document = registry.manifest(image)
    manifest = documents.manifest_of(document.data, where)
    if manifest.config.media_type not in documents.CONFIGURATIONS:
        return None
    if manifest.config.size > documents.MAX_DOCUMENT:
        raise UndecidedError(f"{image}: its configuration has {manifest.config.size} bytes")
    with registry.blob(image, manifest.config) as chunks:
        data = b"".join(chunks)
    return parse_date(documents.configuration_of(data, where).created)


def parse_date(text: str) -> datetime:
    """Parse a time in RFC 3339, as in images; others count as long ago."""
    try:
        date = datetime.fromisoformat(text)
        return date.replace(tzinfo=date.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return _LONGEST_AGO


def _describe_omissions(
    wanted: _ParsedSource, settings: SubjectSettings, found: dict[str, _RepositoryTags]
) -> Iterator[str]:
    if others := sum(tags.others for tags in found.values()):
        what = "of signatures, attestations and other artifacts left out"
        yield f"{wanted.source}: {count(others, 'tag')} {what}"
    if undated := sorted(name for name, tags in found.items() if tags.is_undated):
        yield (
            f"{wanted.source}: of {listing(undated)} the newest {settings.newest} were looked for "
            f"among the {MOST_DATED} tags whose names come last"
        )


#: Images of one run; a large company's daily scan has 100,000.
MOST_SUBJECTS = 500_000


class Lister(Struct, frozen=True):
    """Inputs of lists; the registry is opened when it is first needed."""

    settings: SubjectSettings
    catalogue: Catalogue
    registry: Callable[[], Registry]
    progress: Progress = field(default_factory=Silent)

    def find(self, sources: Sequence[str]) -> SubjectList:
        """List the images of `sources`, merged and sorted by name.

        Raises `UsageError` for invalid sources and for mistakes in files; failures of a registry
        are in `missing`.
        """
        if not sources:
            raise UsageError(
                "name what is in the fleet: registry:HOST/PREFIX/*, file:NAME, pods:NAME"
            )
        from_stdin = [source for source in sources if source in ("-", "file:-", "pods:-")]
        if len(from_stdin) + self.settings.nodes.count("-") > 1:
            raise UsageError("standard input can be one list only")
        lists = RegistryLists(self.registry, self.progress)
        return self._merge([self._read(source, lists) for source in sources])

    def _read(self, source: str, lists: RegistryLists) -> SubjectList:
        kind, separator, name = source.partition(":")
        if separator and kind == "registry":
            return read_registry(name, self.settings, lists, self.progress)
        if separator and kind == "pods":
            return pods.read_pods(name, self.settings, self.catalogue)
        if separator and kind == "file":
            return reference_lists.read_references(name, self.settings)
        if source == "-" or Path(source).is_file():
            return reference_lists.read_references(source, self.settings)
        raise UsageError(
            f"there is no file {source}; a fleet is registry:HOST/PREFIX/*, a file of references "
            "(file:NAME, - for standard input), or pods:NAME of `kubectl get pods -A -o json`"
        )

    def _merge(self, lists: Sequence[SubjectList]) -> SubjectList:
        subjects = [subject for item in lists for subject in item.subjects]
        kept = [item for item in subjects if not is_excluded(item.reference, self.settings.exclude)]
        notes = list(dict.fromkeys(note for item in lists for note in item.notes))
        missing = list(dict.fromkeys(text for item in lists for text in item.missing))
        if left_out := len(subjects) - len(kept):
            notes.append(f"{count(left_out, 'reference')} left out by --exclude")
        merged = merge_subjects(kept)
        if (rest := len(merged) - MOST_SUBJECTS) > 0:
            missing.append(f"{rest:,} images were left out: a run takes {MOST_SUBJECTS:,}")
        classes = {item.name: item for item in self.settings.node_classes}
        classes |= {item.name: item for part in lists for item in part.node_classes}
        return SubjectList(
            subjects=merged[:MOST_SUBJECTS],
            missing=tuple(missing),
            notes=tuple(notes),
            node_classes=tuple(classes.values()),
        )
