"""An audit's options, subject, rules and inputs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from datetime import date
from pathlib import Path

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import shown
from buildmatrix.commands.audit import audit
from buildmatrix.commands.options import AuditOptions
from buildmatrix.judge.acceptance import FailOn
from buildmatrix.judge.judging import Judge
from buildmatrix.locks.index.reading import Reader
from buildmatrix.matrix.model import Spec, Target, Waiver, bare_spec
from buildmatrix.reports.run import Report
from buildmatrix.sources.resolved import Resolved, Unresolved, resolve_sources

Results = Sequence[Resolved | BuildmatrixError]


class AuditInputs(Struct, frozen=True):
    """Inputs of an audit; relative sources start from `root`."""

    sources: tuple[str, ...]
    spec: Spec | None
    root: Path


class AuditSession(Struct, frozen=True):
    """Everything that stays the same when other inputs are audited."""

    inputs: AuditInputs
    reader: Reader
    judge: Judge
    progress: Progress
    options: AuditOptions
    #: Rules with the policy and the waivers of a specification, or of none.
    judge_of: Callable[[Spec | None], Judge]

    def resolve(
        self,
        inputs: AuditInputs | None = None,
        *,
        globs: Sequence[str] | None = None,
        python: str | None = None,
        missing_ok: bool = False,
        relock: bool = False,
        change: Callable[[Target], Target] | None = None,
    ) -> tuple[Resolved | BuildmatrixError, ...]:
        """Resolve the inputs; see `resolve_sources`, also for errors raised.

        `globs` choose other targets, `python` is used where the command line names none.
        """
        inputs, options = inputs or self.inputs, self.options
        return resolve_sources(
            inputs.sources,
            inputs.spec,
            # Targets that are named one by one need no narrowing.
            backends=options.backends if globs is None else (),
            globs=options.select if globs is None else globs,
            subset=options.subset if globs is None else None,
            python=options.python or python,
            platform=options.platform,
            root=inputs.root,
            cache=options.workspace.user_cache(),
            offline=options.workspace.offline,
            missing_ok=missing_ok,
            relock=relock,
            change=change,
            progress=self.progress,
        )

    def report(
        self, results: Results, *, judge: Judge | None = None, advisories: bool = True
    ) -> Report:
        """Audit the resolved distributions."""
        sources, spec = self.inputs.sources, self.inputs.spec
        options, wanted = self.options, self.options.vulnerabilities and advisories
        report = audit(
            shown(", ".join(sources)) or (spec.path.name if spec is not None else ""),
            results,
            self.reader,
            judge or self.judge,
            self.progress,
            deep=options.deep,
            strict=options.strict,
            asking=options.workspace.advisories(wanted),
            cache=options.workspace.user_cache(),
        )
        return report if sources or spec is None else replace(report, project=spec.title)


def common_python(results: Results) -> str | None:
    """The Python that all targets were looked at with, where it is one."""
    pythons = {target.python for target in map(target_of, results) if target is not None}
    return pythons.pop() if len(pythons) == 1 else None


def target_of(result: Resolved | BuildmatrixError) -> Target | None:
    """The target that a result is about."""
    return result.target if isinstance(result, Resolved | Unresolved) else None


# Subject and rules, with a specification or without one


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
    return Judge(replace(base, waivers=(*base.waivers, *accepted)), fail_on, today, baseline)


def check_usable(results: Sequence[Resolved | BuildmatrixError]) -> None:
    """Raise `UsageError` with each reason once, when wrong input leaves no target to look at."""
    wrong = [
        error
        for error in results
        if isinstance(error, BuildmatrixError) and error.exit_code == UsageError.exit_code
    ]
    if wrong and len(wrong) == len(results):
        raise UsageError("\n".join(dict.fromkeys(error.message for error in wrong)))


# Memory of a process with many threads


#: mallopt(3) of glibc.
_M_ARENA_MAX = -8


def share_one_heap() -> None:
    """Let all threads of this process take memory from one heap; before they begin.

    glibc gives each of them a heap of its own, and what one frees no other gets: a third of the
    memory of an audit. They wait for an index most of the time and hold Python's lock for the rest,
    so sharing costs no time. Other C libraries know no such heaps; nothing happens there.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
