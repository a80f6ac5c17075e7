"""Try a change: resolve and audit the changed inputs in a copy, and compare the results.

A trial names the modules that a change removes. Builds from source are looked up, and never tried.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct, field
from packaging.utils import InvalidSdistFilename
from packaging.version import InvalidVersion

from buildmatrix.base.child import scratch
from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UndecidedError, UsageError
from buildmatrix.base.parsing import parse_sdist_name, parse_version
from buildmatrix.commands.audit import AuditInputs, AuditSession, Results, common_python, target_of
from buildmatrix.commands.fix_patches import Draft
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.facts.trees.base import reason
from buildmatrix.judge.model import AuditTotals, Finding, Trial
from buildmatrix.locks.index.model import WheelFacts
from buildmatrix.locks.index.reading import Reader
from buildmatrix.locks.model import Package
from buildmatrix.locks.selection import choose_wheel
from buildmatrix.locks.uv import NoSolution
from buildmatrix.net.machine_indexes import configured
from buildmatrix.reports.run import Report
from buildmatrix.sources.parse import parse_declared
from buildmatrix.sources.questions import Listing
from buildmatrix.sources.resolved import Resolved, Unresolved

# A copy of the user's folder with other content in some files.
#
# Folders on the way to a changed file are created, everything else in them is a link. So includes,
# constraints and settings are found, and no file of the user's is written.


#: Links that are made at most.
_MOST = 50_000


@contextmanager
def overlay(
    root: Path, changed: Mapping[Path, bytes], beside: Collection[Path] = ()
) -> Iterator[Path]:
    """The folder `root` as it would be, in a place that is removed afterwards.

    Args:
        root: the folder that sources start from.
        changed: file -> its content there.
        beside: files that include others, or that must be no link. What they include may be changed
            too.

    Raises `UndecidedError` where such a folder cannot be made.
    """
    start = root.resolve()
    files = {_lexical(path): data for path, data in changed.items()}
    real = {_lexical(path) for path in beside} - {*files}
    top = Path(os.path.commonpath([start, *(path.parent for path in (*files, *real))]))
    with scratch("try") as place:
        # As deep as the real one, so that nothing leads out of it by mistake.
        base = place / "tree"
        base.mkdir()
        folders = {start, *(path.parent for path in (*files, *real))}
        folders |= {up for folder in folders for up in folder.parents if up.is_relative_to(top)} | {
            top
        }
        try:
            _mirror(base, top, folders, {*files, *real})
            for path, data in files.items():
                (base / path.relative_to(top)).write_bytes(data)
            for path in real:
                if path.is_file():
                    (base / path.relative_to(top)).write_bytes(path.read_bytes())
        except OSError as error:
            message = f"{top} cannot be copied to try something: {reason(error)}."
            raise UndecidedError(message) from error
        yield base / start.relative_to(top)


def _lexical(path: Path) -> Path:
    """Return the path of a file without following links."""
    return path.parent.resolve() / path.name


def _mirror(base: Path, top: Path, folders: Collection[Path], own: Collection[Path]) -> None:
    made = 0
    for folder in sorted(folders):
        place = base / folder.relative_to(top)
        place.mkdir(exist_ok=True)
        if not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            for entry in entries:
                path = folder / entry.name
                if path in folders or path in own:
                    continue
                made += 1
                if made > _MOST:
                    raise UndecidedError(
                        f"{top} holds more than {_MOST} files beside those that would change, so "
                        "nothing was tried."
                    )
                (place / entry.name).symlink_to(path)


class Attempt(Struct, frozen=True):
    """One resolution and audit with a change."""

    draft: Draft
    why_not_written: str = ""
    #: Why it does not work; None where it does.
    failure: str | None = None
    #: False where it could not be tried at all.
    is_known: bool = True
    results: Results = ()
    has_no_solution: bool = False
    #: Target -> bytes that it downloads and installs less.
    saved: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    only: str | None = None

    @property
    def works(self) -> bool:
        """True if it fixes its findings and changes nothing else."""
        return self.failure is None


class Bench(Struct):
    """Drafts of changes, each compared with the audit of the current files."""

    session: AuditSession
    results: Results
    report: Report
    #: Locks of the draft, which differ in any case.
    _as_if_unlocked: Report | None = None
    #: Where the last try had its files.
    _place: Path | None = None

    def attempt(
        self,
        draft: Draft,
        ids: frozenset[str],
        gone: Collection[tuple[str, str]],
        obstacle: str = "",
    ) -> Attempt:
        """Audit a draft for the targets `ids`, and look whether the findings `gone` are gone.

        `gone` are targets and fingerprints; `obstacle` is why no file can say the change.
        """
        try:
            results = self._resolve(draft, ids)
        except BuildmatrixError as error:
            return Attempt(
                draft, obstacle, self.short(error), is_known=isinstance(error, UsageError)
            )
        for item in results:
            if isinstance(item, BuildmatrixError):
                reason = item.error if isinstance(item, Unresolved) else item
                is_known = isinstance(reason, NoSolution | UsageError)
                return Attempt(
                    draft, obstacle, self.short(item), is_known=is_known, has_no_solution=is_known
                )
        after = self.session.report(results, advisories=False)
        before = self._before() if not self.session.inputs.sources else self.report
        old, new = (
            {target.id: target.audit or AuditTotals() for target in report.targets}
            for report in (before, after)
        )
        return Attempt(
            draft,
            obstacle,
            _failure(before, after, ids, gone),
            is_known=not _unread(before, after),
            results=tuple(results),
            saved={
                id: (old[id].download - new[id].download, old[id].installed - new[id].installed)
                for id in ids
                if id in old and id in new
            },
        )

    def _resolve(self, draft: Draft, ids: frozenset[str]) -> Results:
        inputs = self.session.inputs
        is_spec = not inputs.sources
        with ExitStack() as stack:
            root, spec = inputs.root, inputs.spec
            if draft.texts:
                contents = {text.at: text.after.encode() for text in draft.texts.values()}
                root = stack.enter_context(overlay(inputs.root, contents, draft.beside))
                self._place = root
                if spec is not None and any(
                    text.path == spec.path.resolve() for text in draft.texts.values()
                ):
                    below = os.path.relpath(spec.path.resolve(), inputs.root.resolve())
                    spec = self.session.options.workspace.load(root / below)
            sources = tuple(_relative(source, inputs.root) for source in draft.sources)
            results = self.session.resolve(
                AuditInputs(sources, spec, root),
                globs=sorted(ids) if is_spec else None,
                python=common_python(self.results) if inputs.sources else None,
                relock=is_spec,
                change=draft.hooked if draft.hooks else None,
            )
        if inputs.sources:
            # Names of targets have those of their sources in them.
            results = tuple(map(_rename, results, self.results))
        return [item for item in results if (target := target_of(item)) is None or target.id in ids]

    def _before(self) -> Report:
        """The audit to compare with: a lock would be another one after a change in any case."""
        spec = self.session.inputs.spec
        assert spec is not None
        if not any((spec.root / target.lock_file).exists() for target in spec.targets):
            return self.report
        if self._as_if_unlocked is None:
            all_ids = [target.id for target in map(target_of, self.results) if target is not None]
            results = self.session.resolve(globs=all_ids, relock=True)
            self._as_if_unlocked = self.session.report(results, advisories=False)
        return self._as_if_unlocked

    def short(self, error: BuildmatrixError) -> str:
        """Return an error in one line, with the names that the user's files have."""
        target = target_of(error)
        first = error.message.removeprefix(f"{target.id}: " if target else "").splitlines()[0]
        return first.replace(f"{self._place}/", "") if self._place is not None else first


def _failure(
    before: Report, after: Report, ids: Collection[str], gone: Collection[tuple[str, str]]
) -> str | None:
    """Return the reason why a try failed; None if it worked."""
    for target in after.targets:
        if target.error is not None:
            return target.error.splitlines()[0]
    for item in _unread(before, after):
        return f"{item.path} could not be read: {item.why}"
    earlier = {(finding.target, finding.fingerprint) for finding in before.findings}
    for finding in after.findings:
        if finding.waived is not None or finding.target not in ids:
            continue
        if (finding.target, finding.fingerprint) in gone:
            return f"the finding stays: {finding.message}"
        if (finding.target, finding.fingerprint) not in earlier and finding.severity != "note":
            return f"it causes a new finding: {finding.rule} {finding.message}"
    return None


def _unread(before: Report, after: Report) -> tuple[Unread, ...]:
    """Return the parts that a try could not read, beyond those unread before."""
    earlier = {unread.path for unread in before.unread}
    return tuple(unread for unread in after.unread if unread.path not in earlier)


def _rename(
    resolved: Resolved | BuildmatrixError, as_before: Resolved | BuildmatrixError
) -> Resolved | BuildmatrixError:
    """A result under the name that its target had before the change."""
    before = target_of(as_before)
    if before is None or not isinstance(resolved, Resolved | Unresolved):
        return resolved
    named = replace(resolved.target, id=before.id)
    if isinstance(resolved, Unresolved):
        return Unresolved(named, resolved.error)
    return replace(resolved, target=named)


def _relative(source: str, root: Path) -> str:
    """A SOURCE that holds in an overlay of `root` too."""
    parsed = parse_declared(source, root)
    if not parsed.is_file or not Path(parsed.name).is_absolute():
        return source
    return parsed.at(os.path.relpath(_lexical(Path(parsed.name)), root.resolve()))


# Removed modules, and the code that imports them.
#
# File lists of wheels have the names of modules. Their imports are read from the project's sources
# and from the Python code of the remaining wheels.


#: Bytes of one wheel that may be read for its imports.
MOST_OF_ONE = 5_000_000
#: Source files of a project that are looked at, bytes of one, and folders that are skipped.
MOST_FILES = 5_000
LARGEST = 1 << 20
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist"})
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([^#\n;]+))", re.M)


def modules(facts: WheelFacts) -> frozenset[str]:
    """The modules that a wheel brings: at the top, and those of namespaces below it."""
    paths = [_installed(member.path) for member in facts.members]
    python = [path for path in paths if path is not None and path.endswith((".py", ".so", ".pyd"))]
    packages = {path.removesuffix("/__init__.py") for path in python if "/__init__." in path}
    names: set[str] = set()
    for path in python:
        parts = path.split("/")
        if len(parts) == 1:
            names.add(parts[0].partition(".")[0])
        elif parts[0] in packages or len(parts) == 2:
            names.add(parts[0])
        else:
            # A namespace: `nvidia.nccl`, `google.protobuf`.
            names.add(f"{parts[0]}.{parts[1]}")
    return frozenset(name for name in names if all(map(str.isidentifier, name.split("."))))


def _installed(path: str) -> str | None:
    """Return the path of a member below site-packages; None if it lies elsewhere."""
    top, slash, below = path.partition("/")
    if top.endswith(".dist-info"):
        return None
    if top.endswith(".data"):
        kind, _, below = below.partition("/")
        return below if kind in ("purelib", "platlib") else None
    return path if slash or "." in top else None


class ChangedModules:
    """One target before and after a change."""

    def __init__(self, before: Resolved, after: Resolved, reader: Reader) -> None:
        """`reader` has read the wheels of both already."""
        self._reader = reader
        self._target = before.target
        self._after = after.lock.packages
        remaining = {package.name for package in after.lock.packages}
        removed = [item for item in before.lock.packages if item.name not in remaining]
        self._removed = {item.name: item for item in removed}
        still = frozenset[str]().union(*(self._modules(item) for item in after.lock.packages))
        #: Distribution that goes → its modules that nothing else brings.
        self.lost = {item.name: self._modules(item) - still for item in removed}
        self._had = {item.name: self._modules(item) for item in removed}

    def loses_all(self, name: str) -> str | None:
        """A module of a distribution that goes, where none of them remains."""
        lost = self.lost.get(name, frozenset())
        return min(lost) if lost and lost == self._had[name] else None

    def importer(self, root: Path) -> tuple[str, str] | None:
        """A known importer of a lost module, and the module; None for no importer."""
        lost = frozenset[str]().union(*self.lost.values())
        if not lost:
            return None
        return next(self._in_wheels(lost), None) or next(_in_sources(root, lost), None)

    def _in_wheels(self, lost: frozenset[str]) -> Iterator[tuple[str, str]]:
        askers = {name for item in self._removed.values() for name in item.via}
        for package in self._after:
            facts = self._facts(package, deeper=package.name in askers)
            for statement in facts.inventory.python_imports if facts is not None else ():
                if statement.how != "tried" and (name := _find_parent(statement.module, lost)):
                    yield f"{package.name} {package.version}", name

    def _modules(self, package: Package) -> frozenset[str]:
        facts = self._facts(package)
        return modules(facts) if facts is not None else frozenset()

    def _facts(self, package: Package, *, deeper: bool = False) -> WheelFacts | None:
        wheel = choose_wheel(package, self._target)
        if wheel is None or not wheel.url:
            return None
        try:
            if deeper:
                return self._reader.read(wheel, "heads", most=MOST_OF_ONE)
            return self._reader.recall_facts(wheel, "listing")
        except UndecidedError:
            return None


def _in_sources(root: Path, lost: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Places of a project's sources that import one of the modules `lost`."""
    for count, path in enumerate(_walk_python_files(root)):
        if count == MOST_FILES:
            return
        try:
            with path.open("rb") as file:
                text = file.read(LARGEST).decode("utf-8", "replace")
        except OSError:
            continue
        for match in _IMPORT.finditer(text):
            several = [name.strip().partition(" ")[0] for name in (match[2] or "").split(",")]
            for name in [match[1]] if match[1] else several:
                if module := _find_parent(name, lost):
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path.relative_to(root).as_posix()}:{line}", module


def _walk_python_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not Path(folder, name, "pyvenv.cfg").exists()
        )
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _find_parent(dotted: str, names: Iterable[str]) -> str | None:
    """Return the element of `names` that a dotted name is or lies below."""
    return next((name for name in names if f"{dotted}.".startswith(f"{name}.")), None)


# Builds from source: looked up, never tried.
#
# A build runs a package's code from an index on this machine, so it is only known whether a source
# exists.


#: `Fix.kind` of those.
KIND = "rebuild"


def look_up(
    findings: Iterable[Finding], results: Results, listing: Listing | None
) -> tuple[Finding, ...]:
    """The findings, with what is known of the sources that their fixes would build.

    `listing` asks an index; None asks none.
    """
    packages = {
        (resolved.target.id, package.name): package
        for resolved in results
        if isinstance(resolved, Resolved)
        for package in resolved.lock.packages
    }
    trials: dict[tuple[str, str], Trial] = {}
    known = []
    for finding in findings:
        fix, package = finding.fix, packages.get((finding.target, finding.distribution or ""))
        if fix is None or fix.kind != KIND or finding.waived is not None or package is None:
            known.append(finding)
            continue
        key = package.name, package.version
        if key not in trials:
            trials[key] = _trial(package, listing)
        known.append(replace(finding, fix=replace(fix, tried=trials[key])))
    return tuple(known)


def _trial(package: Package, listing: Listing | None) -> Trial:
    pin = f"{package.name} {package.version}"
    if listing is None:
        return Trial(None, f"whether there is a source of {pin} is not known offline")
    indexes = [package.index] if package.index else [item.url for item in configured(os.environ)]
    failure = ""
    for index in indexes:
        try:
            files = listing(index, package.name)
        except UndecidedError as error:
            failure = error.message
            continue
        source = next(_find_source_files(files, package.version), None)
        if source is not None:
            return Trial(
                None, f"{source} is there, and building it runs its code, which is not done here"
            )
    if failure:
        return Trial(None, f"whether there is a source of {pin} is not known: {failure}")
    return Trial(False, f"there is no source of {pin} on its index")


def _find_source_files(files: Iterable[str], version: str) -> Iterator[str]:
    for name in files:
        try:
            _, parsed = parse_sdist_name(name)
            if parsed.public == parse_version(version).public:
                yield name
        except (InvalidSdistFilename, InvalidVersion):
            continue
