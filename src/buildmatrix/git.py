"""git, asked as a program: what it may do meanwhile, and what it says when it fails."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

#: Settings of a repository by which git would start programs, with values that start none.
_SAFE = {"core.fsmonitor": "false", "core.hooksPath": os.devnull, "protocol.allow": "never"}
#: `SUDO_UID` tells git whose repositories root may trust.
_KEPT = re.compile(r"GIT_.+|HOME|LD_LIBRARY_PATH|PATH|SUDO_UID|TMPDIR|XDG_CONFIG_HOME")


def ask(
    folder: Path, *arguments: str, seconds: float, git_dir: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """What git answers in `folder`; its exit status may be any.

    `git_dir`: see `environment`. Raises OSError (`FileNotFoundError` without git) and
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
    """Return the first file in `folder` that the index of a repository has.

    None where there is none, no repository or no git, and where git does not answer.
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
    """Return variables with which git asks nobody, writes nothing and speaks English.

    Of this process's, it gets its own and those that say where it finds programs and settings.

    A partial clone would fetch what it lacks, from wherever its settings say.

    `git_dir`: the folder of a stranger's repository, which is meant whatever lies above it and
    whoever owns it. What its settings would start is not started.
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
    # These count more than the files of a repository (git-config, "ENVIRONMENT").
    held |= {"GIT_DIR": str(git_dir.absolute()), "GIT_CONFIG_COUNT": str(len(_SAFE))}
    for number, (key, value) in enumerate(_SAFE.items()):
        held |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return held


def complaint(answer: subprocess.CompletedProcess[bytes]) -> str:
    """Why git failed, in its words: what it calls fatal, else its last line; empty for none."""
    lines = answer.stderr.decode(errors="replace").strip().splitlines()
    fatal = next((line for line in lines if line.startswith("fatal: ")), None)
    return (fatal or (lines[-1] if lines else "")).removeprefix("fatal: ")
