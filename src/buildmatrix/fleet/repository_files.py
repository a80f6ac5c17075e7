"""Files of a repository that declare distributions, read from git's objects.

The default branch of each repository counts (`repositories`). Nothing is checked out, and no
program named in a repository's settings is started.
"""

from __future__ import annotations

import hashlib
import posixpath
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from buildmatrix.base.child import scratch
from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, ComponentError, UndecidedError
from buildmatrix.base.progress import Progress, Silent
from buildmatrix.base.text import count, printable
from buildmatrix.base.threads import Crew
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.commands.git_revision import (
    ObjectReader,
    TreeEntry,
    find_file,
    is_input,
    list_entries,
)
from buildmatrix.fleet.declaring import (
    MOST_BYTES,
    MOST_FILES,
    SPECIFICATION,
    declares_distributions,
    find_covered,
    has_requirements,
    is_aside,
    read_closure,
)
from buildmatrix.fleet.judging import find_named_backend
from buildmatrix.fleet.model import AuditTask, Holder, WorkerSettings
from buildmatrix.fleet.repositories import Repository, find_default_commit, read_commit_time
from buildmatrix.matrix.load import load_spec
from buildmatrix.reports.fleet import BackendBy

#: Repositories read at a time.
_JOBS = 4
#: Files judged per repository, and size limit of a file.
MOST_JUDGED = 200
LARGEST = 32 << 20
NO_BACKEND = (
    "nothing says which backend it is for: no specification, no word of its name; name one with "
    "--backend, or by patterns with --backend-of 'GLOB=BACKEND'"
)


class AuditPlan(Struct, frozen=True, kw_only=True):
    """Tasks of an audit."""

    tasks: tuple[AuditTask, ...]
    #: See `SubjectList`.
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class _RepositoryContents(Struct):
    """Contents of one repository."""

    tasks: list[AuditTask] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: Files skipped for their folders, and files covered by others.
    aside: int = 0
    covered: int = 0


def plan_audit(
    repositories: Iterable[Repository],
    settings: WorkerSettings,
    catalogue: Catalogue,
    progress: Progress | None = None,
) -> AuditPlan:
    """Plan the audit of some repositories; equal files are one task.

    Raises `ComponentError` without git. Unreadable repositories are in `missing`.
    """
    items = list(repositories)
    found: dict[str, _RepositoryContents] = {}
    crew = Crew(partial(_read_repository, settings, catalogue), _JOBS, "buildmatrix-git")
    for item, answer in crew.answers(items):
        found[item.name] = answer
        (progress or Silent()).part("fleet", len(found), len(items), "repositories")
    parts = [found[item.name] for item in items]
    notes = [note for part in parts for note in part.notes]
    if aside := sum(part.aside for part in parts):
        notes.append(f"{count(aside, 'file')} in folders of tests and of vendored code left out")
    if covered := sum(part.covered for part in parts):
        notes.append(
            f"{count(covered, 'file')} left out of which another file holds what is installed: a "
            "lock, a specification, or a file that includes them"
        )
    return AuditPlan(
        tasks=_merge_tasks(task for part in parts for task in part.tasks),
        missing=tuple(text for part in parts for text in part.missing),
        notes=tuple(notes),
    )


def _merge_tasks(tasks: Iterable[AuditTask]) -> tuple[AuditTask, ...]:
    """Merge equal tasks, with all their holders."""
    same: dict[object, AuditTask] = {}
    for task in tasks:
        digests = tuple((name, hashlib.sha256(data).digest()) for name, data in task.files.items())
        key = (task.path, task.backend, task.error, tuple(sorted(digests)))
        known = same.get(key)
        if known is not None:
            task = replace(known, holders=(*known.holders, *task.holders))
        same[key] = task
    return tuple(same.values())


def _read_repository(
    settings: WorkerSettings, catalogue: Catalogue, repository: Repository
) -> _RepositoryContents:
    found = _RepositoryContents()
    try:
        commit = find_default_commit(repository.git_dir)
        if not commit:
            found.notes.append(f"{repository.name} has no commit yet")
            return found
        git_dir = repository.git_dir
        with ObjectReader(git_dir, git_dir) as objects:
            holder = Holder(
                repository=repository.name,
                path="",
                commit=commit,
                created=read_commit_time(git_dir, commit),
                place=repository.place,
                owner=repository.owner,
            )
            entries = list_entries(git_dir, commit, git_dir)
            _RepositoryReader(entries, objects, holder, settings, catalogue, found).make_tasks()
    except FileNotFoundError as error:
        raise ComponentError("git was not found, and repositories are read with it") from error
    except (BuildmatrixError, OSError) as error:
        if isinstance(error, ComponentError):
            raise
        found.missing.append(f"{repository.name}: {printable(str(error)).rstrip('.')}")
    return found


class _RepositoryReader(Struct, frozen=True):
    """Reader of one repository."""

    entries: Mapping[str, TreeEntry]
    objects: ObjectReader
    holder: Holder
    settings: WorkerSettings
    catalogue: Catalogue
    found: _RepositoryContents

    def make_tasks(self) -> None:
        """Make the tasks of the repository."""
        name = self.holder.repository
        if ".gitmodules" in self.entries:
            self.found.notes.append(f"{name} has submodules, which were not looked into")
        paths = [path for path in self.entries if is_input(path) and declares_distributions(path)]
        kept = [path for path in paths if not is_aside(path)]
        self.found.aside += len(paths) - len(kept)
        elsewhere: set[str] = set()
        for path in kept:
            if posixpath.basename(path) == SPECIFICATION:
                elsewhere |= self._specification(path)
        files = [path for path in kept if posixpath.basename(path) != SPECIFICATION]
        elsewhere |= set(find_covered(files, self._text))
        rest = sorted(set(files) - elsewhere, key=lambda path: (path.count("/"), path))
        self.found.covered += len(files) - len(rest)
        rest = [path for path in rest if has_requirements(path, self._text)]
        if len(rest) > MOST_JUDGED:
            self.found.missing.append(
                f"{name} has {len(rest)} files that say what is installed, and {MOST_JUDGED} of "
                "them were judged"
            )
        for path in rest[:MOST_JUDGED]:
            self._add(path)

    def _bytes(self, path: str) -> bytes | None:
        """Return the contents of a file; None if missing. Raises `UndecidedError`."""
        if not is_input(path, (path,)):
            return None
        entry = find_file(path, self.entries, self.objects)
        if entry is None:
            return None
        if entry.size > LARGEST:
            raise UndecidedError(f"{printable(path)} has {entry.size:,} bytes")
        return self.objects.read(entry)

    def _text(self, path: str) -> str:
        """Return the contents of a file, as far as readable."""
        try:
            return (self._bytes(path) or b"").decode(errors="replace")
        except UndecidedError:
            return ""

    def _add(self, path: str) -> None:
        backend, by = self._backend(path)
        holder = replace(self.holder, path=path, backend_by=by)
        try:
            if not backend:
                raise UndecidedError(NO_BACKEND)
            files = read_closure(path, self._bytes)
            if path not in files:
                raise UndecidedError("it is a link that leads to no file of its repository")
        except UndecidedError as error:
            self.found.tasks.append(
                AuditTask(holders=(holder,), path="", backend=backend, error=error.message)
            )
            return
        self.found.tasks.append(_make_task(holder, path, files, backend))

    def _backend(self, path: str) -> tuple[str, BackendBy]:
        """Return the backend of a file, and its source."""
        name = self.holder.repository
        names, parts = (path, f"{name}/{path}"), reversed(path.split("/")[-2:])
        patterns, backends = self.settings.patterns, self.catalogue.backends
        if backend := find_named_backend(names, parts, patterns, backends):
            return backend, "name"
        backend = self.settings.backend
        return (backend, "option") if backend else ("", "nothing")

    def _specification(self, path: str) -> set[str]:
        """Make the task of a specification; return the input files of its targets."""
        folder = posixpath.dirname(path)
        holder = replace(self.holder, path=path)
        files: dict[str, bytes] = {}
        try:
            total = 0
            for name in self.entries:
                if (folder and not name.startswith(f"{folder}/")) or not is_input(name):
                    continue
                data = self._bytes(name)
                if data is None:
                    continue
                files[name] = data
                total += len(data)
                if len(files) > 5 * MOST_FILES or total > MOST_BYTES:
                    raise UndecidedError(
                        f"more than {MOST_BYTES >> 20} MiB of inputs lie beside it"
                    )
        except UndecidedError as error:
            task = AuditTask(holders=(holder,), path="", error=error.message)
            self.found.tasks.append(task)
            return set()
        self.found.tasks.append(_make_task(holder, path, files, ""))
        with scratch("fleet") as top:
            write_files(top, files)
            try:
                spec = load_spec(top / path, backends=lambda own: load(own).backends)
            except BuildmatrixError:
                # The worker reports it.
                return set()
        named = {
            name
            for target in spec.targets
            for name in (target.lock_file, target.pyproject or "", *target.requirements)
            if name
        }
        return {posixpath.normpath(posixpath.join(folder, name)) for name in named}


def _make_task(holder: Holder, path: str, files: Mapping[str, bytes], backend: str) -> AuditTask:
    """Make the task for a file.

    Paths are relative to its folder if all files that it reads are below: then it equals tasks in
    other folders and repositories.
    """
    prefix = posixpath.dirname(path)
    prefix = f"{prefix}/" if prefix else ""
    if not all(name.startswith(prefix) for name in files):
        prefix = ""
    return AuditTask(
        holders=(holder,),
        path=path.removeprefix(prefix),
        files={
            name.removeprefix(prefix): zlib.compress(data, 6)
            for name, data in sorted(files.items())
        },
        backend=backend,
    )


def write_files(top: Path, files: Mapping[str, bytes]) -> None:
    """Write files of a repository below a local folder."""
    for name, data in files.items():
        place = top / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
