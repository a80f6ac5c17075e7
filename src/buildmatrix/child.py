"""Limits and environments of child processes, whose input is untrusted.

An index may send without end, or send some kilobytes that unpack to gigabytes. Untrusted code may
run in a child (`uv` builds source distributions) or beside it, and sees its variables.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

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
    return subprocess.CompletedProcess(command, process.returncode, out, err)
