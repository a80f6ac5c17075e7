"""Generated files that git keeps, and that were not what the specification and the locks give."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection

from buildmatrix import git
from buildmatrix.errors import UndecidedError
from buildmatrix.spec.model import Spec

#: Seconds.
_PATIENCE = 30


def outdated(spec: Spec, generated: Collection[str]) -> tuple[str, ...]:
    """Paths of those files, relative to the specification; call it once all files are written.

    Git's index holds what somebody committed or is about to commit, so a file that a run corrects
    is named again until someone commits it. Files of targets that this run did not generate are not
    compared. Nothing is committed where there is no repository, or no git.

    Args:
        spec: its output folder is looked at.
        generated: paths of the files that were written.

    Raises:
        UndecidedError: git fails.
    """
    if not (spec.root / spec.output).is_dir():
        return ()
    arguments = ("ls-files", "--modified", "-z", "--", f":(literal){spec.output}")
    try:
        answer = git.ask(spec.root, *arguments, seconds=_PATIENCE)
    except FileNotFoundError:
        return ()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UndecidedError(f"git did not answer ({type(error).__name__})") from error
    if answer.returncode != 0:
        reason = git.complaint(answer) or "git failed"
        if reason.startswith("not a git repository"):
            return ()
        raise UndecidedError(reason)
    modified = {os.fsdecode(path) for path in answer.stdout.split(b"\0") if path}
    return tuple(
        path
        for path in sorted(modified)
        if path in generated or not os.path.lexists(spec.root / path)
    )
