"""Files of a repository that declare distributions, the files that these read, and cached results.

Only names and texts count; nothing is resolved here. A worker gets only these files. A file missed
here is missing there, which is reported.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta

import msgspec

from buildmatrix.base.errors import BuildmatrixError, UndecidedError
from buildmatrix.base.text import printable
from buildmatrix.base.threads import prepare_type
from buildmatrix.base.toml import TomlError, loads
from buildmatrix.fleet.model import AuditTask, WorkerSettings
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.locks.committed import is_lock
from buildmatrix.locks.lines import INCLUDE, logical_lines
from buildmatrix.matrix.model import Waiver
from buildmatrix.reports.fleet import FleetResult
from buildmatrix.sources.resolved import Resolved

# Files that a file reads, by its text


#: Number of files, and bytes of all together.
MOST_FILES = 1000
MOST_BYTES = 64 << 20
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(\S+)")
_LOCAL = re.compile(r"(?:file:)?(\.{1,2}/[^\s;\[#]*|/[^\s;\[#]*)")
#: Inputs in the header of a file written by pip-compile or uv.
_INPUT = re.compile(r"[^\s'\"=]+\.(?:in|txt|toml|cfg)\b")
#: Other projects in a uv lock, and in a project file.
_PROJECT = re.compile(r'\b(?:editable|virtual|directory|path)\s*=\s*"([^"\n]{1,500})"')
_HEADER_LINES = 40
_PYPROJECT = "pyproject.toml"


def read_closure(path: str, read: Callable[[str], bytes | None]) -> dict[str, bytes]:
    """Return a file and all files that it reads, with contents; `read` gives None if missing.

    Raises `UndecidedError` for references outside of the repository.
    """
    files: dict[str, bytes] = {}
    total = 0
    waiting = [path]
    while waiting:
        name = waiting.pop()
        data = read(name) if name not in files else None
        if data is None:
            continue
        files[name] = data
        total += len(data)
        if len(files) > MOST_FILES or total > MOST_BYTES:
            raise UndecidedError(f"it reads more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB")
        waiting += _find_references(name, data.decode(errors="replace"), is_first=name == path)
    return files


def find_included(path: str, text: str) -> Iterator[str]:
    """Yield the files that a requirements file includes. Raises `UndecidedError`."""
    for number, line, _ in logical_lines(text):
        where = f"{printable(path)}:{number}"
        if variable := _VARIABLE.search(line):
            # The author of the line also controls addresses, and would learn the value there.
            raise UndecidedError(
                f"{where} uses the environment variable {variable[1]}, and a repository of a fleet "
                "gets none"
            )
        if include := INCLUDE.fullmatch(line):
            name = include[2].strip("\"' ")
            if "://" not in name:
                yield _join_inside(path, name, where)
        elif (local := _EDITABLE.match(line) or _LOCAL.match(line)) and "://" not in local[1]:
            yield posixpath.join(_join_inside(path, local[1].partition("[")[0], where), _PYPROJECT)


def _join_inside(path: str, name: str, where: str) -> str:
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    if posixpath.isabs(joined) or joined.split("/")[0] == "..":
        raise UndecidedError(f"{where} names {printable(name)[:200]}, outside of its repository")
    return joined


def _find_references(path: str, text: str, *, is_first: bool) -> Iterator[str]:
    folder, name = posixpath.split(path)

    def beside(other: str) -> str:
        return posixpath.normpath(posixpath.join(folder, other))

    if name.endswith((".txt", ".in")):
        yield from find_included(path, text)
        for line in text.splitlines()[:_HEADER_LINES]:
            if line.startswith("#"):
                yield from map(beside, _INPUT.findall(line))
        return
    if not is_first:
        return
    if name == "Pipfile.lock":
        yield beside("Pipfile")
    if name in ("uv.lock", "poetry.lock"):
        yield beside(_PYPROJECT)
    if name in ("uv.lock", _PYPROJECT):
        for other in _PROJECT.findall(text):
            yield beside(posixpath.join(other, _PYPROJECT))


# Declarations of a repository, without duplicates


#: Returns the contents of a file of the repository, as far as readable.
TextOf = Callable[[str], str]
SPECIFICATION = "buildmatrix.toml"
_LOCKS_OF_PROJECTS = ("uv.lock", "poetry.lock", "pylock.toml")
_REQUIREMENTS = re.compile(r"(?:.*[-_.])?requirements(?:[-_.].*)?\.(?:txt|in)")
#: Folders with code of other projects, or code that is not installed with the project.
_ASIDE = frozenset(
    {
        *("vendor", "vendored", "_vendor", "third_party", "third-party", "thirdparty"),
        *("node_modules", "site-packages", "test", "tests", "testing", "testdata", "fixtures"),
    }
)


def declares_distributions(path: str) -> bool:
    """True if a file declares distributions, by its name."""
    folder, name = posixpath.split(path)
    if name in (SPECIFICATION, _PYPROJECT) or is_lock(name):
        return True
    in_folder = posixpath.basename(folder) == "requirements" and name.endswith((".txt", ".in"))
    # Constraints install nothing.
    return (in_folder or bool(_REQUIREMENTS.fullmatch(name))) and "constraint" not in name


def is_aside(path: str) -> bool:
    """True if a file is in a folder of tests or of another project's code."""
    return not _ASIDE.isdisjoint(path.split("/")[:-1])


def has_requirements(path: str, text: TextOf) -> bool:
    """True if a file requires anything: many project files have only settings of tools."""
    if posixpath.basename(path) != _PYPROJECT:
        return True
    try:
        document = loads(text(path))
    except TomlError:
        return True  # Judging the file reports the error.
    project, tool = document.get("project"), document.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    held = []
    if isinstance(project, dict):
        held += [project.get("dependencies"), project.get("optional-dependencies")]
        held.append("dependencies" in (project.get("dynamic") or ()))
    if isinstance(poetry, dict):
        held.append(poetry.get("dependencies"))
    return any(held)


def find_covered(paths: Iterable[str], text: TextOf) -> Iterator[str]:
    """Yield files whose contents are covered by another one."""
    names = set(paths)
    for path in names:
        folder, name = posixpath.split(path)
        if (
            name == _PYPROJECT
            and any(posixpath.join(folder, lock) in names for lock in _LOCKS_OF_PROJECTS)
        ) or (name.endswith(".in") and path.removesuffix(".in") + ".txt" in names):
            yield path
        if name.endswith((".txt", ".in")):
            try:
                yield from find_included(path, text(path))
            except UndecidedError:
                continue  # Judging the file itself reports it.


# Cached results: unchanged files are not judged again.
#
# The key of an entry covers the bytes of a file and of all that it reads, its backend, the
# platform, the user's data files, and the code with its catalogue. A lock with hashes of its wheels
# has the same result every day. If an index decides about distributions, it is queried each time,
# and the entry is valid while the answer is the same. Waivers expire, so an entry has a last day.


#: Size limit of all entries in a machine's folder; each has some 2 KB.
LIMIT = 500_000_000


class CachedAudit(msgspec.Struct, frozen=True):
    """The results for a file, without data of a repository."""

    results: tuple[FleetResult, ...]
    #: The index's answer; empty if none was queried.
    answer: str
    #: The days on which it is valid, both included.
    first: date
    last: date


_CACHED_AUDIT = msgspec.msgpack.Decoder(prepare_type(CachedAudit))


class CachedAudits:
    """Cached results of one file."""

    def __init__(
        self, cache: Cache, settings: WorkerSettings, task: AuditTask, files: Mapping[str, bytes]
    ) -> None:
        self._store = cache.store(
            "fleet-audits", source_digest(), limit=LIMIT, age=90 * DAY, by_use=True
        )
        self._today = settings.today
        about = (
            task.path,
            task.backend,
            sorted((name, hashlib.sha256(data).digest()) for name, data in files.items()),
            settings.platform,
            sorted(settings.data_files.items()),
        )
        self._key = hashlib.sha256(msgspec.msgpack.encode(about)).hexdigest()

    def load(self, answer: str = "") -> tuple[FleetResult, ...]:
        """Return the results if valid with this answer of the index; else none."""
        kept = self._store.load(self._key, _CACHED_AUDIT)
        if kept is None or kept.answer != answer or not kept.first <= self._today <= kept.last:
            return ()
        return kept.results

    def save(
        self, results: Sequence[FleetResult], answer: str, waivers: Iterable[Waiver] = ()
    ) -> None:
        """Save results that depend only on the file, the answer and these waivers."""
        days = [waiver.expires for waiver in waivers]
        today = self._today
        first = max((day + timedelta(1) for day in days if day < today), default=date.min)
        last = min((day for day in days if day >= today), default=date.max)
        self._store.save(self._key, CachedAudit(tuple(results), answer, first, last))


def summarize_answer(resolved: Sequence[Resolved | BuildmatrixError], folder: str) -> str:
    """Return an index's answer about the targets of a file; empty if none was queried.

    `folder` is the local location of the file, which is not part of the answer.
    """
    if all(isinstance(item, Resolved) and not item.is_asked for item in resolved):
        return ""
    parts = [
        (
            item.target.python,
            item.lock.packages,
            item.lock.conda,
            item.lock.unread,
            item.lock.left_out,
            item.lock.is_completed,
        )
        if isinstance(item, Resolved)
        else item.message
        for item in resolved
    ]
    data = msgspec.msgpack.encode(parts).replace(folder.encode(), b"")
    return hashlib.sha256(data).hexdigest()
