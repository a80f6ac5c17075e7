"""One audit with the options of a command line, which can be repeated with other inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from buildmatrix.commands.audit.run import audit
from buildmatrix.commands.audit.subject import subject_of
from buildmatrix.errors import BuildmatrixError
from buildmatrix.index.reading import Reader
from buildmatrix.judge import Judge
from buildmatrix.progress import Progress
from buildmatrix.reports.run.model import Report
from buildmatrix.sources.resolved import Resolved, Unresolved, resolve_sources
from buildmatrix.spec.model import Spec, Target
from buildmatrix.store.cache import Cache
from buildmatrix.vulnerabilities.advisories import AdvisoryOptions

Results = Sequence[Resolved | BuildmatrixError]


@dataclass(frozen=True, slots=True)
class AuditInputs:
    """Inputs of an audit; relative sources start from `root`."""

    sources: tuple[str, ...]
    spec: Spec | None
    root: Path


@dataclass(frozen=True, slots=True)
class AuditSession:
    """Everything that stays the same when other inputs are audited."""

    inputs: AuditInputs
    reader: Reader
    judge: Judge
    progress: Progress
    #: Reads a specification, and checks it against the catalogue.
    load: Callable[[Path], Spec]
    #: Rules with the policy and the waivers of a specification, or of none.
    judge_of: Callable[[Spec | None], Judge]
    backends: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    subset: str | None = None
    python: str | None = None
    platform: str | None = None
    cache: Cache | None = None
    offline: bool = False
    deep: bool = False
    strict: bool = False
    asking: AdvisoryOptions | None = None

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
        inputs = inputs or self.inputs
        return resolve_sources(
            inputs.sources,
            inputs.spec,
            # Targets that are named one by one need no narrowing.
            backends=self.backends if globs is None else (),
            globs=self.globs if globs is None else globs,
            subset=self.subset if globs is None else None,
            python=self.python or python,
            platform=self.platform,
            root=inputs.root,
            cache=self.cache,
            offline=self.offline,
            missing_ok=missing_ok,
            relock=relock,
            change=change,
            progress=self.progress,
        )

    def report(
        self, results: Results, *, judge: Judge | None = None, advisories: bool = True
    ) -> Report:
        """The audit of what was resolved."""
        return audit(
            subject_of(self.inputs.sources, self.inputs.spec),
            results,
            self.reader,
            judge or self.judge,
            self.progress,
            deep=self.deep,
            strict=self.strict,
            asking=self.asking if advisories else None,
        )


def common_python(results: Results) -> str | None:
    """The Python that all targets were looked at with, where it is one."""
    pythons = {target.python for target in map(target_of, results) if target is not None}
    return pythons.pop() if len(pythons) == 1 else None


def target_of(result: Resolved | BuildmatrixError) -> Target | None:
    """The target that a result is about."""
    return result.target if isinstance(result, Resolved | Unresolved) else None
