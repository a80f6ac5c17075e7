"""Relevant commit of a repository: that of its default branch.

This is `origin/HEAD`, if the clone has it, else `HEAD`.
"""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from buildmatrix import git
from buildmatrix.errors import UndecidedError

_SECONDS = 120
_COMMITTER = re.compile(
    rb"^committer .*> (-?[0-9]{1,12}) ([+-])([0-9]{2})([0-9]{2})$", re.MULTILINE
)


def _ask(git_dir: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return git.ask(git_dir, *arguments, seconds=_SECONDS, git_dir=git_dir)
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
        raise UndecidedError(f"git cannot read it: {git.complaint(done)}")
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
