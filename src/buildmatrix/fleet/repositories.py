"""Repositories of a fleet: local clones and bare repositories, and their default branches.

Nothing is cloned or fetched. A source is a repository, a folder with repositories below it, or a
list of them: one path per line, relative to the list, optionally with `owner=NAME`, and `#` for
comments.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from msgspec import Struct

from buildmatrix.base import child
from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError, UndecidedError, UsageError
from buildmatrix.base.text import count, printable, shown
from buildmatrix.fleet.reference_lists import read_text

#: Folders searched below a source, and their depth: HOST/GROUP/SUBGROUP/NAME.
MOST_FOLDERS = 100_000
_DEEPEST = 5
_COMMENT = re.compile(r"(?:^|\s)#.*")
_OWNER = re.compile(r"\s+owner=(\S+)$")
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/\s]+@[^/\s]+:")


class Repository(Struct, frozen=True, kw_only=True):
    """A local repository."""

    #: Name in the fleet: relative to its source folder, or as in a list.
    name: str
    #: `.git`, or the bare repository itself.
    git_dir: Path
    #: Its source in the fleet.
    place: str
    owner: str = ""


class Repositories(Struct, frozen=True, kw_only=True):
    """Repositories of some sources."""

    repositories: tuple[Repository, ...]
    #: See `SubjectList`.
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find_repositories(sources: Sequence[str]) -> Repositories:
    """Find the repositories of all sources, without duplicates, sorted by name.

    Raises `UsageError` for invalid sources, and `SpecError` for mistakes in a list.
    """
    if not sources:
        raise UsageError(
            "name repositories: a folder of clones, a repository, or a list (file:NAME)"
        )
    notes: list[str] = []
    missing: list[str] = []
    found: dict[Path, Repository] = {}
    for source in sources:
        for repository in _read_source(source, missing, notes):
            found.setdefault(repository.git_dir.resolve(), repository)
    names = Counter(repository.name for repository in found.values())
    # Repositories with the same name are named by their location.
    repositories = [
        item if names[item.name] == 1 else replace(item, name=printable(str(item.git_dir)))
        for item in found.values()
    ]
    return Repositories(
        repositories=tuple(sorted(repositories, key=lambda item: (item.name, str(item.git_dir)))),
        missing=tuple(missing),
        notes=tuple(notes),
    )


def _read_source(source: str, missing: list[str], notes: list[str]) -> Iterator[Repository]:
    name = source.removeprefix("file:")
    if name != source or source == "-" or Path(source).is_file():
        yield from _read_list(name, missing, notes)
        return
    _check_local(source)
    folder = Path(source)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {source}, and no list of that name")
    yield from _find_below(folder, source, "", missing, notes)


def _check_local(text: str) -> None:
    if _REMOTE.match(text):
        raise UsageError(
            f"{shown(text)} is not on this machine, and nothing is fetched; "
            "run `git clone --mirror` for it, and name the folder"
        )


def _read_list(name: str, missing: list[str], notes: list[str]) -> Iterator[Repository]:
    title = "standard input" if name == "-" else name
    top = Path() if name == "-" else Path(name).parent
    problems: list[Problem] = []
    for number, line in enumerate(read_text(name, title).split("\n"), 1):
        text = _COMMENT.sub("", line).strip()
        owner = _OWNER.search(text)
        path = text[: owner.start()] if owner else text
        if not path:
            continue
        try:
            _check_local(path)
            folder = top / path
            if "\0" in path or not folder.is_dir():
                raise UsageError(f"there is no folder {printable(path)}")
        except UsageError as error:
            problems.append(Problem(error.message, title, number))
            continue
        place = f"{title}:{number}"
        yield from _find_below(folder, place, path, missing, notes, owner[1] if owner else "")
    if problems:
        raise SpecError(problems[:20])


def _find_below(
    folder: Path, place: str, name: str, missing: list[str], notes: list[str], owner: str = ""
) -> Iterator[Repository]:
    """Yield a folder, if it is a repository, else all repositories below it."""
    linked = total = number = 0
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        inner = Path(os.path.relpath(here, folder))
        if (git_dir := _find_git_dir(here)) is not None:
            total += 1
            own = str(Path(name) / inner) if inner.parts else name or folder.resolve().name
            yield Repository(name=_shorten_name(own), git_dir=git_dir, place=place, owner=owner)
        elif inner.parts and (here / ".git").is_file():
            linked += 1
        elif len(inner.parts) < _DEEPEST:
            number += 1
            if number > MOST_FOLDERS:
                missing.append(
                    f"{place}: more than {MOST_FOLDERS:,} folders; name some that lie deeper"
                )
                break
            waiting += _list_folders(here, missing)
    if linked:
        notes.append(
            f"{place}: {count(linked, 'folder')} of work trees and submodules left out: name the "
            "repositories that they belong to"
        )
    if not total:
        missing.append(f"{place}: there is no repository in {printable(str(folder))}")


def _list_folders(folder: Path, missing: list[str]) -> list[Path]:
    """Return the folders in a folder; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)
            )
    except OSError as error:
        missing.append(f"{printable(str(folder))} cannot be read: {error.strerror}")
        return []


def _find_git_dir(folder: Path) -> Path | None:
    """Return the git directory of a folder; None if it is not a repository."""
    for place in (folder / ".git", folder):
        if (place / "HEAD").is_file() and (place / "objects").is_dir():
            return place
    return None


def _shorten_name(name: str) -> str:
    return printable(name.rstrip("/").removesuffix(".git").rstrip("/") or name)


_SECONDS = 120
_COMMITTER = re.compile(
    rb"^committer .*> (-?[0-9]{1,12}) ([+-])([0-9]{2})([0-9]{2})$", re.MULTILINE
)


def _ask(git_dir: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return child.ask_git(git_dir, *arguments, seconds=_SECONDS, git_dir=git_dir)
    except subprocess.TimeoutExpired as error:
        raise UndecidedError(f"git did not answer within {_SECONDS} seconds") from error


def find_default_commit(git_dir: Path) -> str:
    """Return the commit of the default branch; empty without any. Raises `UndecidedError`."""
    for name in ("refs/remotes/origin/HEAD", "HEAD"):
        done = _ask(git_dir, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if done.returncode == 0:
            return done.stdout.decode().strip()
    # The first query gives no reason; this one does.
    done = _ask(git_dir, "for-each-ref", "--count=1")
    if done.returncode != 0 or done.stderr:
        raise UndecidedError(f"git cannot read it: {child.git_complaint(done)}")
    if done.stdout or _ask(git_dir, "rev-parse", "--verify", "--quiet", "HEAD").stdout:
        raise UndecidedError("git finds no commit of its default branch")
    return ""


def read_commit_time(git_dir: Path, commit: str) -> str:
    """Return the time of a commit in RFC 3339; empty if unknown."""
    done = _ask(git_dir, "cat-file", "commit", commit)
    match = _COMMITTER.search(done.stdout.partition(b"\n\n")[0])
    if match is None:
        return ""
    offset = timedelta(hours=int(match[3]), minutes=int(match[4]))
    try:
        zone = timezone(-offset if match[2] == b"-" else offset)
        return datetime.fromtimestamp(int(match[1]), UTC).astimezone(zone).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""
