"""Child processes with untrusted input: bounded output, minimal environments, safe calls of git.

An index may send without end, or send some kilobytes that unpack to gigabytes. Untrusted code may
run in a child (`uv` builds source distributions) or beside it, and sees its variables.

They may hold passwords, since an installer has to read a user's inputs. A killed run cannot clean
up; so each folder is locked while its owner lives, and a later run removes unlocked ones.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import resource
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from buildmatrix.base.text import shown

_logger = logging.getLogger(__name__)
#: Seconds between terminating a process and killing it.
GRACE = 2.0
#: Variables that a program needs to start, to find others, and for its temporary files.
_BARE = frozenset({"HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR"})
#: Variables that say how this machine reaches servers.
_NETWORK = re.compile(
    r"(?i:https?|ftp|all|no)_proxy|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
#: Variables for signing in the name of this user or job; only this process uses them.
_SIGNING = re.compile(
    r"COSIGN_.+|SIGSTORE_.+|ACTIONS_ID_TOKEN_REQUEST_.+|BUILDKITE_AGENT_ACCESS_TOKEN"
)


# Log of child processes


#: Longest word of a command that is logged, and the number of words.
_MOST_CHARACTERS, _MOST_WORDS = 300, 200
_NAMES = r"(?:passw|passphrase|secret|token|credential|auth|api[-_]?key|access[-_]?key)"
#: `API_TOKEN=x`, `--password x`, `Authorization: x`, `Bearer x`, `-u user:x`.
_SECRET_VALUE = re.compile(
    rf"(?i)([\w.-]*{_NAMES}[\w.-]*\s*[=:]\s*(?:(?:bearer|basic)\s+)?|\b(?:bearer|basic)\s+"
    rf"|--[\w-]*{_NAMES}[\w-]*\s+|(?:-u|--user)[\s=]+[^\s:'\"]+:)"
    r"(?:\"[^\"]*\"?|'[^']*'?|[^\s'\"]+)"
)
#: The value is the next word.
_SECRET_NAME = re.compile(rf"(?i)[\w.-]*{_NAMES}[\w.-]*")
_MASK = "***"


def describe_command(command: Sequence[str | os.PathLike[str]]) -> str:
    """Return a command for people, as a shell reads it, without passwords and tokens."""
    words: list[str] = []
    is_secret = False
    for part in command[:_MOST_WORDS]:
        # Without secrets before it is cut: half of a URL does not look like one.
        word = shown(os.fspath(part))
        text = word if len(word) <= _MOST_CHARACTERS else f"{word[:_MOST_CHARACTERS]}..."
        is_login = bool(words) and words[-1] in ("-u", "--user") and ":" in text
        text = f"{text.partition(':')[0]}:{_MASK}" if is_login else text
        words.append(_MASK if is_secret else _SECRET_VALUE.sub(rf"\1{_MASK}", text))
        is_secret = _SECRET_NAME.fullmatch(text) is not None
    more = ["..."] if len(command) > _MOST_WORDS else []
    return shlex.join([*words, *more])


def log_process(command: Sequence[str | os.PathLike[str]]) -> Callable[[int | None], None]:
    """Log the start of a process; the returned function logs its exit status and its time."""
    if not _logger.isEnabledFor(logging.DEBUG):
        return lambda _: None
    started = time.monotonic()
    _logger.debug("run %s", describe_command(command))
    name = Path(command[0]).name

    def log_end(status: int | None) -> None:
        _logger.debug("%s: exit status %s, %.2f s", name, status, time.monotonic() - started)

    return log_end


def bare_environment(*, with_network: bool = False) -> dict[str, str]:
    """Return the variables of a child that needs nothing of this user."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _BARE or (with_network and _NETWORK.fullmatch(name))
    } | {"LC_ALL": "C.UTF-8"}


def user_environment() -> dict[str, str]:
    """Return the variables of a program that acts for this user, without those for signing."""
    return {name: value for name, value in os.environ.items() if not _SIGNING.fullmatch(name)}


def bound(pid: int, *, memory: int, file: int | None = None) -> None:
    """Limit a process that was just started to `memory` bytes, and its files to `file` bytes.

    Counts writable memory (RLIMIT_DATA, setrlimit(2)), not the address space, which is some
    gigabytes for any program with threads. Does nothing on systems other than Linux.
    """
    limits = [(resource.RLIMIT_DATA, memory), (resource.RLIMIT_CORE, 0)]
    if file is not None:
        limits.append((resource.RLIMIT_FSIZE, file))
    if not hasattr(resource, "prlimit"):
        return
    # It may have ended already.
    with suppress(ProcessLookupError):
        for resource_kind, limit in limits:
            hard = resource.prlimit(pid, resource_kind)[1]
            wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.prlimit(pid, resource_kind, (wanted, wanted))


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    seconds: float,
    memory: int,
    input: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` to its end, with UTF-8 in both outputs; `input` is its standard input.

    Raises `subprocess.TimeoutExpired` after `seconds`; the process is ended then.
    """
    log_end = log_process(command)
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            bound(process.pid, memory=memory)
            out, err = process.communicate(input, timeout=seconds)
        except BaseException:
            # Not killed at once, since it may have child processes to end.
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            process.kill()
            raise
    log_end(process.returncode)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


# git


#: Settings by which a repository makes git start programs, with values that start none.
_SAFE_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "protocol.allow": "never",
}
#: Variables that git gets; `SUDO_UID` tells it whose repositories root may trust.
_GIT_VARIABLES = re.compile(r"GIT_.+|HOME|LD_LIBRARY_PATH|PATH|SUDO_UID|TMPDIR|XDG_CONFIG_HOME")


def ask_git(
    folder: Path, *arguments: str, seconds: float, git_dir: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run git in `folder` and return its output; its exit status may be any.

    `git_dir`: see `environment`. Raises `OSError` (`FileNotFoundError` without git) and
    `subprocess.TimeoutExpired`.
    """
    command = ["git", "--no-pager", *arguments]
    log_end = log_process(command)
    answer = subprocess.run(
        command,
        cwd=folder,
        env=git_environment(git_dir),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=seconds,
    )
    log_end(answer.returncode)
    return answer


def tracked_file(folder: Path, seconds: float = 30.0) -> str | None:
    """Return the first file in `folder` that git tracks.

    Returns None without such a file, a repository or git, and if git does not answer.
    """
    place = folder.resolve()
    if not place.is_dir() or not any((up / ".git").exists() for up in (place, *place.parents)):
        return None
    try:
        answer = ask_git(
            place, "-c", "core.fsmonitor=false", "ls-files", "-z", "--", ".", seconds=seconds
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    name, end, _ = answer.stdout.partition(b"\0")
    return os.fsdecode(name) if end else None


def git_environment(git_dir: Path | None = None) -> dict[str, str]:
    """Return variables with which git asks nothing, writes nothing and speaks English.

    They include git's own variables and those for finding programs and settings. Without
    `GIT_NO_LAZY_FETCH`, a partial clone would fetch missing objects from wherever its settings say.

    `git_dir` is the folder of an untrusted repository: it is used whatever is above it and
    whichever user owns it, and programs in its settings are not started.
    """
    kept = {name: text for name, text in os.environ.items() if _GIT_VARIABLES.fullmatch(name)}
    held = kept | {
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    if git_dir is None:
        return held
    for name in ("GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"):
        held.pop(name, None)
    # These override the files of a repository (git-config, "ENVIRONMENT").
    held |= {"GIT_DIR": str(git_dir.absolute()), "GIT_CONFIG_COUNT": str(len(_SAFE_SETTINGS))}
    for number, (key, value) in enumerate(_SAFE_SETTINGS.items()):
        held |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return held


def git_complaint(answer: subprocess.CompletedProcess[bytes]) -> str:
    """Return git's error message: its `fatal:` line or its last line; empty if there is none."""
    lines = answer.stderr.decode(errors="replace").strip().splitlines()
    fatal = next((line for line in lines if line.startswith("fatal: ")), None)
    return (fatal or (lines[-1] if lines else "")).removeprefix("fatal: ")


_PREFIX = "buildmatrix."
#: Seconds after its creation in which an unlocked folder may be about to be locked by its creator.
_FRESH = 60


@contextmanager
def scratch(purpose: str, folder: Path | None = None) -> Iterator[Path]:
    """Create a folder (mode 0700) and remove it at the end; `purpose` is a word in its name.

    Its parent is `folder`, or by default the system's folder for temporary files. Raises `OSError`.
    """
    _sweep_once(tempfile.gettempdir() if folder is None else str(folder))
    with tempfile.TemporaryDirectory(
        prefix=f"{_PREFIX}{purpose}.", dir=folder, ignore_cleanup_errors=True
    ) as name:
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Some network file systems have no locks; what killed runs leave there stays.
            with suppress(OSError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(name)
        finally:
            os.close(held)


def sweep(folder: Path) -> None:
    """Remove what this user's killed runs left in `folder`."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    _remove_if_left(entry.path)


@cache
def _sweep_once(folder: str) -> None:
    sweep(Path(folder))


def _remove_if_left(path: str) -> None:
    """Remove the folder `path` if this user owns it, it is not new, and it is unlocked."""
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(held)
        is_ours = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
        if is_ours and abs(time.time() - status.st_ctime) > _FRESH:
            # Its user holds this lock; the system releases it when the process ends.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Unpacked folders have the image's permissions; `os.walk` lists a folder after this.
            for place, folders, _ in os.walk(path):
                for name in folders:
                    inner = Path(place, name)
                    if not inner.is_symlink():
                        inner.chmod(0o700)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(held)
