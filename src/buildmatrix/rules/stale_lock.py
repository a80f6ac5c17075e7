"""BM106: a lock is older than what it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath

from buildmatrix.phrases import listing
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.wheels import Wheels

#: Locks of other tools, and what makes them.
_COMMANDS = {"uv.lock": "uv lock", "poetry.lock": "poetry lock", "Pipfile.lock": "pipenv lock"}


def check(wheels: Wheels) -> Iterator[Finding]:
    """At most one finding."""
    if wheels.stale is None:
        return
    fits = "does not fit" if wheels.stale.is_proven else "may not fit"
    path = wheels.lock.path.name if wheels.lock is not None else wheels.target.lock_file
    yield finding(
        "BM106",
        wheels,
        f"the lock {fits} its inputs, and the lock decides what is installed: {wheels.stale}",
        severity=None if wheels.stale.is_proven else "warning",
        path=wheels.target.lock_file or path,
        chain=(wheels.target.lock_file or path,),
        fix=Fix("upgrade", f"{_again(wheels)}, and commit the result"),
    )


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding of this rule for each cause, where several targets have it; others as they are.

    A requirements file that changed makes the locks of all targets stale, and one command cures it.
    """
    kept: list[Finding] = []
    alike: dict[object, list[Finding]] = {}
    for item in findings:
        if item.rule != "BM106":
            kept.append(item)
            continue
        key = (
            item.message,
            item.severity,
            item.waived,
            item.fix.text if item.fix is not None else "",
        )
        alike.setdefault(key, []).append(item)
    for first, *others in alike.values():
        also = tuple(other.target for other in others)
        more = f"; the same holds for {listing(also)}" if also else ""
        kept.append(replace(first, message=first.message + more, also=also))
    return tuple(kept)


def _again(wheels: Wheels) -> str:
    """How the lock is made."""
    path = PurePath(wheels.target.lock_file)
    command = _COMMANDS.get(path.name)
    if command is None and path.name.startswith("pylock.") and wheels.target.project:
        command = "buildmatrix lock"
    return f"run `{command}`" if command else "lock again with the tool that made it"
