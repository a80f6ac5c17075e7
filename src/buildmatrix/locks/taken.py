"""Locks of targets taken from a project's own lock: nothing is resolved.

The target's part of `uv.lock`, `poetry.lock`, ... is written as a PEP 751 lock of its own, which
both engines install. An index is asked only if the project's lock names files without addresses.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.base import child
from buildmatrix.base.errors import (
    EXIT_FINDINGS,
    BuildmatrixError,
    Problem,
    SpecError,
    UndecidedError,
    UsageError,
)
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import without_login
from buildmatrix.base.toml import TomlError, loads, string, tables, tool_table
from buildmatrix.facts.files import keep_out_of_git, write_changed
from buildmatrix.facts.trees.base import reason
from buildmatrix.locks.committed import TOOL_CHECKS, describe_unchecked, read_committed
from buildmatrix.locks.lookup import Pins, find_files, lacks_files
from buildmatrix.locks.model import LeftOut, Lock, LockedFile, Package, Staleness, Wheel
from buildmatrix.locks.projects import read_project
from buildmatrix.locks.pylock import read_lock
from buildmatrix.locks.pylock_writer import inputs_digest, taken_document
from buildmatrix.locks.recent import Recent
from buildmatrix.locks.selection import LockSelection, best_wheel, refusal
from buildmatrix.locks.uv import Uv, find_uv
from buildmatrix.matrix.model import TAKEN_LOCKS, Target, is_pylock

#: Name of a lock → the command that makes it again, and the one that upgrades it.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "uv.lock": ("uv lock", "uv lock --upgrade"),
    "poetry.lock": ("poetry lock", "poetry update"),
    "Pipfile.lock": ("pipenv lock", "pipenv update"),
}
#: Timeout in seconds of a tool's own check; uv takes one for a large workspace, Poetry and Pipenv
#: three.
_SECONDS = 60.0
#: Messages of uv, Poetry and Pipenv for a lock that does not fit its inputs.
_OUTDATED = re.compile(
    r"needs to be updated|changed significantly since|is not up to date with|is out-of-date"
)


class StaleLockError(BuildmatrixError):
    """A lock of the project that does not fit its inputs."""

    exit_code = EXIT_FINDINGS


def selection_of(root: Path, target: Target) -> LockSelection:
    """Return the part of the project's lock that `target` installs.

    An image has only the groups that its specification names. Default groups of a pylock are
    different: without them, the lock of some tools is empty.
    """
    path = root / target.committed_lock
    groups = frozenset(map(canonicalize_name, (*target.groups, *target.only_groups)))
    return LockSelection(
        path,
        target.committed_lock,
        target,
        frozenset(map(canonicalize_name, target.extras)),
        groups,
        has_main=not target.only_groups,
        has_defaults=is_pylock(path.name) and not target.only_groups,
    )


def read_taken(root: Path, target: Target) -> tuple[Pins, Staleness | None]:
    """Return the project's lock for `target`, and why it is older than its inputs, if it is.

    Raises `SpecError` for a lock that is broken or is for other targets.
    """
    selection = selection_of(root, target)
    if selection.path.suffix == ".txt":
        selection.check((), ())
    pins, stale = read_committed(selection)
    dropped: set[str] = set(map(canonicalize_name, target.drop))
    dropped |= {
        package.name for package in pins.lock.packages if _own_folder(root, target, package)
    }
    built = set(map(canonicalize_name, target.no_binary))
    packages = tuple(
        replace(package, wheels=(), source_only=True) if package.name in built else package
        for package in pins.lock.packages
        if package.name not in dropped
    )
    lock = replace(
        pins.lock,
        packages=packages,
        # The specification says which parts a target gets.
        left_out=LeftOut(),
        decided=pins.lock.decided | dropped,
    )
    return replace(pins, lock=lock), stale


def own_projects(root: Path, target: Target) -> tuple[str, ...]:
    """Return folders of the projects that are installed themselves, whose wheels are built.

    These are that of `pyproject` and, of a lock of a workspace, the selected members.
    """
    folder = posixpath.dirname(target.pyproject or "")
    members: list[str] = []
    if target.committed_lock:
        packages = read_committed(selection_of(root, target))[0].lock.packages
        members += filter(None, (_own_folder(root, target, package) for package in packages))
    is_installed = not members or is_package(root / folder / "pyproject.toml")
    return (*([folder] if is_installed else []), *sorted(set(members) - {folder}))


def _own_folder(root: Path, target: Target, package: Package) -> str:
    """Return the folder of a project locked as a folder and installed itself; else empty."""
    if not (target.install_project and package.source and package.sdist is None):
        return ""
    lock = posixpath.dirname(target.committed_lock)
    label = posixpath.normpath(posixpath.join(lock, package.source))
    try:
        place = (root / label / "pyproject.toml").resolve(strict=True)
    except (OSError, ValueError):
        return ""  # It is no folder, but an address.
    return label if place.is_relative_to(root.resolve()) and is_package(place) else ""


def is_package(pyproject: Path) -> bool:
    """Return True if the project of a `pyproject.toml` is installed itself."""
    document = read_project(pyproject, pyproject.name).document
    poetry = tool_table(document, "poetry")
    has_build = "build-system" in document and poetry.get("package-mode") is not False
    return tool_table(document, "uv").get("package", has_build) is True


def trouble_with(root: Path, target: Target, *, allow_stale: bool = False) -> str | None:
    """Return why the project's lock cannot be installed for `target`; None if it can.

    Needs no network, and asks no index for files.
    """
    try:
        pins, stale = read_taken(root, target)
        if stale is not None and stale.is_proven and not allow_stale:
            return stale.reason
        _check_hashes(target, pins)
        _check(target, [item for item in pins.lock.packages if not lacks_files(item)])
    except SpecError as error:
        return str(error.problems[0].message)
    except UsageError as error:
        return error.message
    return None


def take(root: Path, target: Target, *, offline: bool, jobs: int, progress: Progress) -> Lock:
    """Write the lock of `target` from that of its project, and return it.

    Raises:
        StaleLockError: the lock does not fit its inputs.
        SpecError: it is broken, is not for the target, or has a package without a hash.
        UndecidedError: an index does not answer.
    """
    progress.step(target.id, f"lock: taking the files of {target.lock_label}")
    pins, stale = read_taken(root, target)
    _check_fit(root, target, stale, progress)
    _check_hashes(target, pins)
    path, record = root / target.lock, ""
    if any(map(lacks_files, pins.lock.packages)):
        record = _record(target, pins.lock.digest)
        known = _read_previous(path, record)
        if known is not None:
            return _add_lines(known, pins.lock)
        progress.step(target.id, f"lock: looking up the files of {target.lock_label}")
        recent = Recent(offline=offline)
        found = find_files(find_uv(), target, pins, recent, offline=offline, jobs=jobs)
        if found.away:
            raise UndecidedError(f"{target.id}: {', '.join(found.away)} did not answer")
        pins = replace(pins, lock=found)
    _check(target, pins.lock.packages)
    packages = [_installable(package, target) for package in pins.lock.packages]
    text = taken_document(target.lock_label, packages, pins.lock.decided)
    try:
        keep_out_of_git((root / TAKEN_LOCKS).parent)
    except OSError as error:
        raise UndecidedError(f"{TAKEN_LOCKS} cannot be written: {reason(error)}") from error
    write_changed(path, text.encode())
    lock = read_lock(path)
    if record:
        write_changed(_record_path(path), f"{record} {lock.digest}\n".encode())
    return _add_lines(lock, pins.lock)


def _add_lines(lock: Lock, origin: Lock) -> Lock:
    """Return a lock taken from `origin`, with lines there and in the project's files.

    The file has no lines: it stays the same when only these move.
    """
    packages = {package.name: package for package in origin.packages}
    return replace(
        lock,
        packages=tuple(
            replace(package, via=whole.via, place=whole.place)
            if (whole := packages.get(package.name)) is not None
            else package
            for package in lock.packages
        ),
    )


def _record(target: Target, digest: str) -> str:
    """Return a digest of all inputs of the index lookup."""
    values = {
        "lock": digest,
        "selection": target.lock_label,
        "only-groups": " ".join(target.only_groups),
        "python": target.python,
        "platform": target.platform,
        "base": target.base.final,
        "drop": " ".join(sorted(target.drop)),
        "no-binary": " ".join(sorted(target.no_binary)),
        "install-project": str(target.install_project),
        "torch": target.torch or "",
    }
    values |= {f"index {name}": without_login(url) for name, url in target.index.items()}
    return inputs_digest(values)


def _record_path(path: Path) -> Path:
    return path.with_suffix(".inputs")


def _read_previous(path: Path, record: str) -> Lock | None:
    """Return the lock that was taken before, if its source is the same and it is unchanged."""
    try:
        lock = read_lock(path)
        written = _record_path(path).read_text(encoding="utf-8")
    except (SpecError, OSError, UnicodeDecodeError):
        return None
    return lock if written == f"{record} {lock.digest}\n" else None


# Checks


def _check_fit(root: Path, target: Target, stale: Staleness | None, progress: Progress) -> None:
    """Raise `StaleLockError` if the lock does not fit its inputs, according to its own tool."""
    label = target.committed_lock
    name = label.rpartition("/")[2]
    if not (stale and stale.is_proven):
        if name == "uv.lock":
            command, fits = "uv lock --check", _ask_uv(find_uv(), root / label)
        else:
            command, fits = TOOL_CHECKS.get(name, ("", ""))[1], _ask_tool(root / label)
        if fits is False:
            stale = Staleness(f"`{command}` says that {label} needs to be updated")
        elif fits:
            stale = None
        elif unchecked := describe_unchecked(selection_of(root, target)):
            progress.note(f"{target.id}: {unchecked}")
    if stale is None:
        return
    if stale.is_proven:
        make, _ = COMMANDS.get(name, ("", ""))
        again = f"run `{make}`" if make else "lock again with the tool that made it"
        raise StaleLockError(f"{target.id}: {label} does not fit its inputs: {stale}; {again}")
    progress.note(f"{target.id}: {label} may not fit its inputs: {stale}")


def _ask_uv(uv: Uv, path: Path) -> bool | None:
    """Return True if uv says that `uv.lock` fits its projects; None if uv cannot tell offline.

    Mirrors of this machine are ignored: the lock is checked against its projects alone.
    """
    try:
        text = path.read_bytes()
    except OSError:
        return None
    if not (path.parent / "pyproject.toml").is_file():
        return None
    command = [str(uv.path), "lock", "--check", "--offline", "--quiet"]
    command += [f"--index={url}" for url in _registries(text)]
    return _run_check((*command,), path.absolute().parent, (text,))


def _ask_tool(path: Path) -> bool | None:
    """Return True if a lock fits its inputs, by its own tool; None if that cannot tell.

    Neither command runs code of the project: plugins in `.poetry` and variables of `.env` are off.
    """
    commands = {
        "poetry.lock": ("poetry", "--no-plugins", "--no-interaction", "check", "--lock"),
        "Pipfile.lock": ("pipenv", "verify"),
    }
    program, *arguments = commands.get(path.name, ("",))
    found = shutil.which(program) if program else None
    # A relative entry of PATH would find programs in the project.
    if found is None or not Path(found).is_absolute():
        return None
    try:
        texts = path.read_bytes(), (path.parent / TOOL_CHECKS[path.name][0]).read_bytes()
    except OSError:
        return None
    return _run_check((found, *arguments), path.absolute().parent, texts)


@lru_cache(maxsize=16)
def _run_check(command: tuple[str, ...], folder: Path, _texts: tuple[bytes, ...]) -> bool | None:
    """Run the check of a lock; None if it says neither yes nor no."""
    variables = {
        name: value
        for name, value in child.user_environment().items()
        if not re.fullmatch(
            r"UV_.*INDEX.*|UV_FIND_LINKS|VIRTUAL_ENV|COLUMNS|PIPENV_(PIPFILE|DOTENV_LOCATION)", name
        )
    }
    variables |= {"UV_PYTHON_DOWNLOADS": "never", "PIPENV_DONT_LOAD_ENV": "1", "NO_COLOR": "1"}
    try:
        answer = child.run(command, folder, variables, seconds=_SECONDS, memory=4 << 30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode == 0:
        return True
    return False if _OUTDATED.search(answer.stderr + answer.stdout) else None


def _registries(text: bytes) -> tuple[str, ...]:
    try:
        document = loads(text.decode())
    except (UnicodeDecodeError, TomlError):
        return ()
    sources = (item.get("source") for item in tables(document.get("package")))
    urls = (string(source.get("registry")) for source in sources if isinstance(source, dict))
    return tuple(sorted({url for url in urls if url.startswith(("http://", "https://"))}))


def _check_hashes(target: Target, pins: Pins) -> None:
    """Raise `SpecError` for packages of which any file would do."""
    problems = [
        Problem(
            f"{target.id}: {package.name} {package.version} has no hash",
            package.place or target.committed_lock,
            hint="lock it with hashes",
        )
        for package in pins.lock.packages
        if lacks_files(package)
        and not (package.wheels or package.sdist or pins.hashes.get(package.name))
    ]
    if problems:
        raise SpecError(problems)


def _check(target: Target, packages: Sequence[Package]) -> None:
    """Raise `SpecError` for packages without a file with a hash that installs on the target."""
    problems = []
    for package in packages:
        why = next(_obstacles(package, target), None)
        if why is not None:
            file, _, line = package.place.rpartition(":")
            problems.append(
                Problem(
                    f"{target.id}: {package.name} {package.version}".rstrip() + f" {why[0]}",
                    file or target.committed_lock,
                    int(line) if line.isdecimal() else None,
                    hint=why[1],
                )
            )
    if problems:
        raise SpecError(problems)


def _obstacles(package: Package, target: Target) -> Iterator[tuple[str, str]]:
    """Yield obstacles to installing a package as locked, with their fix."""
    files = _files(package, target)
    if package.source and not files:
        yield (
            f"is locked as {package.source}, which is not a file with a hash",
            f'lock a file of an index, or remove it: drop = ["{package.name}"]',
        )
    elif not files:
        why = refusal(package, target) or "its lock has no file of it"
        yield f"cannot be installed: {why}", "lock it for this platform and Python"
    for file in files:
        if not file.sha256:
            yield f"has no hash for {file.filename}", "lock it with hashes"
        elif not re.match(r"https?://" if package.index is None else r"(https?|file)://", file.url):
            where = file.url or "nowhere"
            yield (
                f"is locked as a file on this machine ({where})",
                "put it on an index, and lock it from there",
            )


def _files(package: Package, target: Target) -> list[LockedFile]:
    """Return the files that an installer may take on the target: wheels, else the source."""
    wheels = _wheels(package, target)
    if wheels or package.sdist is None:
        return [*wheels]
    return [package.sdist]


def _wheels(package: Package, target: Target) -> tuple[Wheel, ...]:
    return tuple(wheel for wheel in package.wheels if best_wheel([wheel], target) is not None)


def _installable(package: Package, target: Target) -> Package:
    wheels = _wheels(package, target)
    is_built = not wheels and package.sdist is not None
    return replace(
        package,
        wheels=wheels,
        sdist=package.sdist if is_built else None,
        source_only=is_built,
    )


def upgrade_command(target: Target) -> str:
    """Return the command that upgrades the project's lock; empty if it is unknown."""
    return COMMANDS.get(target.committed_lock.rpartition("/")[2], ("", ""))[1]
