"""Inputs of an audit at a git revision.

git's objects are read with `ls-tree` and `cat-file`. Nothing is checked out, so no hook, filter or
attribute of the repository takes effect, and the work tree stays unchanged.
"""

from __future__ import annotations

import posixpath
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from buildmatrix.base import child
from buildmatrix.base.child import scratch
from buildmatrix.base.errors import ComponentError, UndecidedError, UsageError
from buildmatrix.sources.parse import parse_declared

#: Suffixes of possible inputs: requirements, projects, locks, environments, settings and templates.
_SUFFIXES = (".txt", ".in", ".toml", ".lock", ".cfg", ".j2", ".yml", ".yaml")
_NAMES = ("Pipfile",)
#: Limits: bytes of one file, bytes and number of all files, and links in a row.
_LARGEST = 64 * 1024 * 1024
_ALL_BYTES = 256 * 1024 * 1024
_ALL_FILES = 20_000
_LINKS = 8
#: Size limit of git's list of all files; a million files take some 100 MB.
_LIST = 512 * 1024 * 1024
_SECONDS = 120
_REGULAR, _LINK = ("100644", "100755"), "120000"


class Revision(Struct, frozen=True):
    """A folder with the inputs of a revision."""

    #: The folder that was requested, at that revision; it may not exist.
    folder: Path
    #: Full name of the commit.
    commit: str
    #: Possible inputs that were skipped: too large, or too many.
    left_out: tuple[str, ...] = ()


class TreeEntry(Struct, frozen=True):
    """A file, or a link, of a commit."""

    mode: str
    object: str
    size: int


@contextmanager
def extract_revision(root: Path, ref: str, also: Collection[str] = ()) -> Iterator[Revision]:
    """Provide the inputs of `root`'s repository at `ref`, in a temporary folder.

    `also` are files, relative to `root`, that are inputs under any name.

    Raises `ComponentError` without git, `UsageError` if `root` is not in a repository or git does
    not know the revision, and `UndecidedError` if git cannot read its objects.
    """
    if not ref or ref.startswith("-") or "\0" in ref or "\n" in ref:
        raise UsageError(f"{ref!r} is not a revision; write a branch, a tag or a commit")
    if shutil.which("git") is None:
        raise ComponentError("git was not found, and --diff needs it; install git.")
    prefix = _find_prefix(root, ref)
    done = _run(root, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
    if done.returncode != 0:
        raise UsageError(
            f"git knows no revision {ref!r} here; fetch it first (in CI, a shallow clone has only "
            "the newest commit)"
        )
    commit = done.stdout.decode().strip()
    entries = list_entries(root, commit)
    with scratch("revision") as top:
        named = {posixpath.normpath(posixpath.join(prefix, name)) for name in also}
        left_out = _write(root, entries, top, named)
        yield Revision(top / prefix, commit, left_out)


def make_relative(sources: Sequence[str], root: Path) -> tuple[str, ...]:
    """Make absolute paths below `root` in SOURCEs relative to it, to use them in another root.

    Raises `UsageError` for invalid SOURCEs.
    """
    relative, top = [], root.resolve()
    for source in sources:
        parsed = parse_declared(source, top)
        path = Path(parsed.name)
        if parsed.is_file and path.is_absolute() and path.resolve().is_relative_to(top):
            source = parsed.at(path.resolve().relative_to(top).as_posix())
        relative.append(source)
    return tuple(relative)


def _find_prefix(root: Path, ref: str) -> str:
    done = _run(root, "rev-parse", "--show-prefix")
    if done.returncode == 0:
        return done.stdout.decode(errors="surrogateescape").rstrip("\n")
    message = done.stderr.decode(errors="replace")
    if "dubious ownership" in message:
        raise UsageError(
            f"the repository of {root} belongs to another user, so git does not read it; "
            f"run `git config --global --add safe.directory {root.resolve()}`"
        )
    raise UsageError(f"{root} is not in a git repository, so there is no {ref} to compare with")


def list_entries(root: Path, commit: str, git_dir: Path | None = None) -> Mapping[str, TreeEntry]:
    """Map paths to entries, for all files of a commit; `git_dir` as for `git_environment`."""
    done = _run(root, "ls-tree", "-r", "-z", "-l", "--full-tree", commit, git_dir=git_dir)
    if done.returncode != 0 or len(done.stdout) > _LIST:
        why = child.git_complaint(done) or "it says nothing"
        raise UndecidedError(f"git cannot list the files of {commit[:12]}: {why}.")
    entries: dict[str, TreeEntry] = {}
    for line in done.stdout.split(b"\0"):
        about, _, name = line.partition(b"\t")
        fields = about.decode().split()
        if len(fields) == 4 and fields[1] == "blob":
            path = name.decode(errors="surrogateescape")
            # `BAD` for a missing object; reading it reports that.
            size = int(fields[3]) if fields[3].isdecimal() else 0
            entries[path] = TreeEntry(fields[0], fields[2], size)
    return entries


def _write(
    root: Path, entries: Mapping[str, TreeEntry], top: Path, named: Collection[str]
) -> tuple[str, ...]:
    """Write possible inputs below `top`; return the skipped paths."""
    left_out: list[str] = []
    taken = total = 0
    with ObjectReader(root) as objects:
        # Files near the top first: data sets deep below have text files too.
        for path in sorted(entries, key=lambda path: (path.count("/"), path)):
            if not is_input(path, named):
                continue
            entry = find_file(path, entries, objects)
            if entry is None:
                continue
            if entry.size > _LARGEST or total + entry.size > _ALL_BYTES or taken >= _ALL_FILES:
                left_out.append(path)
                continue
            taken, total = taken + 1, total + entry.size
            place = top / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(objects.read(entry))
    return tuple(left_out)


def is_input(path: str, named: Collection[str] = ()) -> bool:
    """True if a file can be an input, by its name; invalid names in git are rejected."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return False  # git does not write such trees, but others may.
    return parts[-1].endswith(_SUFFIXES) or parts[-1] in _NAMES or path in named


def find_file(
    path: str, entries: Mapping[str, TreeEntry], objects: ObjectReader
) -> TreeEntry | None:
    """Return the file that a path leads to within the repository, or None."""
    for _ in range(_LINKS):
        entry = entries.get(path)
        if entry is None or entry.mode in _REGULAR:
            return entry
        if entry.mode != _LINK or entry.size > 4096:
            return None
        link = objects.read(entry).decode(errors="surrogateescape")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return None


class ObjectReader:
    """A running `git cat-file --batch` that returns the bytes of objects."""

    def __init__(self, root: Path, git_dir: Path | None = None) -> None:
        self._process = subprocess.Popen(
            ["git", "cat-file", "--batch"],
            cwd=root,
            env=child.git_environment(git_dir),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> ObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def read(self, entry: TreeEntry) -> bytes:
        """Return the bytes of a file, or the target of a link."""
        source, answers = self._process.stdin, self._process.stdout
        assert source is not None and answers is not None
        try:
            source.write(f"{entry.object}\n".encode())
            source.flush()
            header = answers.readline().split()
            if len(header) == 3 and header[1] == b"blob" and int(header[2]) == entry.size:
                data = answers.read(entry.size)
                if len(data) == entry.size and answers.read(1) == b"\n":
                    return data
        except BrokenPipeError:
            pass
        name = entry.object[:12]
        raise UndecidedError(f"git cannot read the object {name}: is this a partial clone?")


def _run(
    root: Path, *arguments: str, git_dir: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    try:
        return child.ask_git(root, *arguments, seconds=_SECONDS, git_dir=git_dir)
    except OSError as error:
        raise UsageError(f"{root} is not a folder that can be opened") from error
    except subprocess.TimeoutExpired as error:
        raise UndecidedError(f"git did not answer within {_SECONDS} seconds.") from error
