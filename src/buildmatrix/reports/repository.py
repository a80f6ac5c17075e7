"""What formats may have to know of the repository, the job and the day that they are written in."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from buildmatrix import git
from buildmatrix.errors import UsageError

#: Bytes of a file that is read for the columns of its lines.
_LARGEST_TEXT = 4 << 20


_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
#: Bytes of the event that started a job, and seconds that git may take.
_LARGEST_EVENT, _GIT_SECONDS = 4 << 20, 10.0


@dataclass(frozen=True, slots=True)
class Job:
    """The commit that a document is about, and the job that writes it."""

    sha: str
    #: `refs/heads/main`
    ref: str
    #: The run; `local` on no CI system.
    id: str = "local"
    #: What is the same in each run of the job.
    name: str = "local"
    url: str = ""


def job_of(folder: Path) -> Job:
    """The job of GitHub Actions, else the commit that is checked out in `folder`.

    Its variables (`GITHUB_SHA`, `GITHUB_REF`, ...) can be set by anybody. In a pull request the
    commit is its head and not the merge that only the job has. Raises `UsageError`.
    """
    given = os.environ.get
    sha = _head_of_pull_request() or given("GITHUB_SHA") or _asked(folder, "rev-parse", "HEAD")
    ref = given("GITHUB_REF") or _asked(folder, "symbolic-ref", "HEAD")
    if not _SHA.fullmatch(sha) or not re.fullmatch(r"refs/[!-~]+", ref):
        raise UsageError(
            "a snapshot is about one commit of a branch; set GITHUB_SHA (40 hex digits) and "
            "GITHUB_REF (refs/heads/NAME), or run it where a branch is checked out"
        )
    run, place = given("GITHUB_RUN_ID", ""), given("GITHUB_REPOSITORY", "")
    return Job(
        sha,
        ref,
        run or "local",
        " ".join(filter(None, (given("GITHUB_WORKFLOW"), given("GITHUB_JOB")))) or "local",
        f"{given('GITHUB_SERVER_URL', 'https://github.com')}/{place}/actions/runs/{run}"
        if run and place
        else "",
    )


def _head_of_pull_request() -> str:
    """The last commit of the pull request that started this job; empty for others."""
    path = os.environ.get("GITHUB_EVENT_PATH", "")
    if not os.environ.get("GITHUB_EVENT_NAME", "").startswith("pull_request") or not path:
        return ""
    try:
        if Path(path).stat().st_size > _LARGEST_EVENT:
            return ""
        sha = json.loads(Path(path).read_bytes())["pull_request"]["head"]["sha"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return sha if isinstance(sha, str) else ""


def _asked(folder: Path, *arguments: str) -> str:
    try:
        answer = git.ask(folder, *arguments, seconds=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.decode(errors="replace").strip() if answer.returncode == 0 else ""


def text_below(top: Path, folder: Path, name: str) -> str | None:
    """The text of a file that a report names, as seen from `folder`; None outside of `top`.

    Reports are read from others: what they name may be anything.
    """
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(top) or not path.is_file():
            return None
        if path.stat().st_size > _LARGEST_TEXT:
            return None
        return path.read_bytes().decode()
    except (OSError, ValueError, RuntimeError):  # The last for links that loop.
        return None


def time_of_writing() -> datetime:
    """What formats say that ask for a time: `SOURCE_DATE_EPOCH`, else now; in UTC, whole seconds.

    Raises `UsageError` for a `SOURCE_DATE_EPOCH` that is no time.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {epoch[:40]!r}; write seconds since 1970-01-01"
        ) from error
