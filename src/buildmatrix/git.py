"""git, asked as a program: what it may do meanwhile, and what it says when it fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def ask(folder: Path, *arguments: str, seconds: float) -> subprocess.CompletedProcess[bytes]:
    """What git answers in `folder`; its exit status may be any.

    Raises OSError (`FileNotFoundError` without git) and `subprocess.TimeoutExpired`.
    """
    return subprocess.run(
        ["git", "--no-pager", *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=seconds,
    )


def environment() -> dict[str, str]:
    """The environment of this process, in which git asks nobody, writes nothing and speaks English.

    A partial clone would fetch what it lacks, from wherever its settings say.
    """
    return os.environ | {
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


def complaint(answer: subprocess.CompletedProcess[bytes]) -> str:
    """Why git failed, in its words: what it calls fatal, else its last line; empty for none."""
    lines = answer.stderr.decode(errors="replace").strip().splitlines()
    fatal = next((line for line in lines if line.startswith("fatal: ")), None)
    return (fatal or (lines[-1] if lines else "")).removeprefix("fatal: ")
