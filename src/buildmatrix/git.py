"""Safe calls of the git program, and its error messages."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

#: Settings by which a repository makes git start programs, with values that start none.
_SAFE = {"core.fsmonitor": "false", "core.hooksPath": os.devnull, "protocol.allow": "never"}
#: Variables that git gets; `SUDO_UID` tells it whose repositories root may trust.
_KEPT = re.compile(r"GIT_.+|HOME|LD_LIBRARY_PATH|PATH|SUDO_UID|TMPDIR|XDG_CONFIG_HOME")


def ask(
    folder: Path, *arguments: str, seconds: float, git_dir: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run git in `folder` and return its output; its exit status may be any.

    `git_dir`: see `environment`. Raises `OSError` (`FileNotFoundError` without git) and
    `subprocess.TimeoutExpired`.
    """
    return subprocess.run(
        ["git", "--no-pager", *arguments],
        cwd=folder,
        env=environment(git_dir),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=seconds,
    )


def tracked_file(folder: Path, seconds: float = 30.0) -> str | None:
    """Return the first file in `folder` that git tracks.

    Returns None without such a file, a repository or git, and if git does not answer.
    """
    place = folder.resolve()
    if not place.is_dir() or not any((up / ".git").exists() for up in (place, *place.parents)):
        return None
    try:
        answer = ask(
            place, "-c", "core.fsmonitor=false", "ls-files", "-z", "--", ".", seconds=seconds
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    name, end, _ = answer.stdout.partition(b"\0")
    return os.fsdecode(name) if end else None


def environment(git_dir: Path | None = None) -> dict[str, str]:
    """Return variables with which git asks nothing, writes nothing and speaks English.

    They include git's own variables and those for finding programs and settings. Without
    `GIT_NO_LAZY_FETCH`, a partial clone would fetch missing objects from wherever its settings say.

    `git_dir` is the folder of an untrusted repository: it is used whatever is above it and
    whichever user owns it, and programs in its settings are not started.
    """
    kept = {name: text for name, text in os.environ.items() if _KEPT.fullmatch(name)}
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
    held |= {"GIT_DIR": str(git_dir.absolute()), "GIT_CONFIG_COUNT": str(len(_SAFE))}
    for number, (key, value) in enumerate(_SAFE.items()):
        held |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return held


def complaint(answer: subprocess.CompletedProcess[bytes]) -> str:
    """Return git's error message: its `fatal:` line or its last line; empty if there is none."""
    lines = answer.stderr.decode(errors="replace").strip().splitlines()
    fatal = next((line for line in lines if line.startswith("fatal: ")), None)
    return (fatal or (lines[-1] if lines else "")).removeprefix("fatal: ")
