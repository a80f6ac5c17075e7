"""Subject of an audit, and its rules, with a specification and without one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date

from buildmatrix.errors import BuildmatrixError, UsageError
from buildmatrix.judge import Judge
from buildmatrix.rules.acceptance import FailOn
from buildmatrix.sources.resolved import Resolved
from buildmatrix.spec.model import Spec, Waiver, bare_spec
from buildmatrix.text import shown


def judge_for(
    spec: Spec | None,
    accepted: Sequence[Waiver],
    fail_on: FailOn,
    today: date,
    baseline: Collection[str],
) -> Judge:
    """The rules with the policy and the waivers of `spec`, and with those that are `accepted`.

    `baseline` has the fingerprints of findings that are not new.
    """
    base = spec if spec is not None else bare_spec()
    return Judge(
        replace(base, waivers=(*base.waivers, *accepted)),
        fail_on,
        today,
        baseline,
    )


def check_usable(results: Sequence[Resolved | BuildmatrixError]) -> None:
    """Raise `UsageError` with each reason once, when wrong input leaves no target to look at."""
    wrong = [
        error
        for error in results
        if isinstance(error, BuildmatrixError) and error.exit_code == UsageError.exit_code
    ]
    if wrong and len(wrong) == len(results):
        raise UsageError("\n".join(dict.fromkeys(error.message for error in wrong)))


def subject_of(sources: Sequence[str], spec: Spec | None) -> str:
    """Return the subject that the report names."""
    return shown(", ".join(sources)) or (spec.path.name if spec is not None else "")
