"""Lookup of the files of pinned versions, for locks with hashes and no files.

`poetry.lock` has file names and no addresses; `Pipfile.lock` and pinned requirements have at most
hashes. uv knows the machine's indexes, mirrors and credentials: it resolves exactly the pinned
versions, without their dependencies, so nothing is chosen and nothing is built.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from buildmatrix.base.child import scratch
from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import without_login
from buildmatrix.images.store.cache import DAY, Cache
from buildmatrix.locks.model import File, Lock, LockedFile, Package
from buildmatrix.locks.plan import TORCH_FAMILY, index_of, torch_backend
from buildmatrix.locks.pylock import entries_of
from buildmatrix.locks.selection import installed_environment
from buildmatrix.locks.uv import (
    NoSolution,
    Unreached,
    Uv,
    compile_arguments,
    explain_failure,
    project_text,
)
from buildmatrix.matrix.model import Target
from buildmatrix.net.machine_indexes import local_path, pip_settings_for_uv, places, uv_files

# State of this machine: settings and files that affect uv's answers. Without it, a cached answer
# would miss a wheel that was added to a folder of `--find-links`.


#: Maximum files to check of a folder; larger folders are read again in every run.
MOST_STAMPS = 50_000
#: An index has a folder for each project, with its files or beside them.
_DEEPEST = 2
#: Differs from run to run.
_RUN = secrets.token_hex(16)


def local_state(
    environment: Mapping[str, str],
    project: Mapping[str, object],
    options: Sequence[str],
    addresses: Iterable[str],
) -> object:
    """Return a value for JSON that changes when the state does.

    Args:
        environment: of this process.
        project: the settings of uv in the project.
        options: index options of the requirements files.
        addresses: of files in requirements, and of a target's indexes.
    """
    forwarded = pip_settings_for_uv(environment, project, options)
    locations = places({**environment, **forwarded.variables}, project, options)
    return [
        {name: value for name, value in environment.items() if name.startswith("UV_")},
        [*forwarded.variables.items()],
        forwarded.arguments,
        [[str(path), _read_text(path)] for path in uv_files(environment)],
        [[place, _take_state(place, 0)] for place in locations.find_links],
        [[place, _take_state(place, _DEEPEST)] for place in (*locations.indexes, *addresses)],
    ]


def _read_text(path: Path) -> str | None:
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8")
    return None


def _take_state(place: str, deep: int) -> object:
    """Return stamps of a file, or of the files in a folder; None if remote or missing."""
    path = local_path(place)
    if path is None:
        return None
    stamps = []
    for stamp in _iter_stamps(path, deep):
        stamps.append(stamp)
        if len(stamps) > MOST_STAMPS:
            return _RUN
    return sorted(stamps)


def _iter_stamps(path: Path, deep: int) -> Iterator[tuple[str, int, int, int, int]]:
    try:
        if not path.is_dir():
            yield _make_stamp(os.fspath(path), path.stat())
            return
        entries = os.scandir(path)
    except OSError:
        return
    with entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.is_dir():
                    yield _make_stamp(entry.path, entry.stat())
                elif deep:
                    yield from _iter_stamps(Path(entry.path), deep - 1)


def _make_stamp(path: str, status: os.stat_result) -> tuple[str, int, int, int, int]:
    return path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


# Cache, so that a repeated audit does not ask the index again.
#
# The key of an entry has all of its inputs. It is used for as long as PyPI allows for its pages
# (`Cache-Control: max-age=600`), as in uv's own cache; offline, for any age.


#: Seconds.
YOUNG = 600.0
#: Maximum age in seconds, even offline.
_OLD = 30 * DAY
#: Bytes of all entries together; the largest real ones have some 2 MB.
_LIMIT = 256 << 20
#: An address with a query: a token or a signature, with which anybody can get the file.
_SIGNED = re.compile(rb"://[^\s\"'\\]*\?")


class Recent:
    """Cached resolutions; keys include all inputs."""

    def __init__(self, cache: Cache | None = None, *, offline: bool = False) -> None:
        self._store = (cache or Cache(None)).store("resolved", "2", limit=_LIMIT, age=_OLD)
        self._within = _OLD if offline else YOUNG

    def get(self, key: str) -> bytes | None:
        """Return the entry of `key`, if it is young enough."""
        return self._store.get(key, self._within)

    def put(self, key: str, body: bytes) -> None:
        """Store `body`, without signatures of addresses."""
        if not _SIGNED.search(body):
            self._store.put(key, body)


#: Indexes that stand for "the default index", which a machine may mirror.
_DEFAULT = re.compile(r"https://pypi\.(org|python\.org)/simple/?")
#: Local versions whose index uv's `--torch-backend` knows.
_TORCH = re.compile(r"\+(cu\d+|rocm[0-9.]+|xpu|cpu)$")


class Pins(Struct, frozen=True):
    """A lock whose files must be looked up, with its statements about their place."""

    lock: Lock
    #: Name → allowed hashes, if the lock names no files.
    hashes: Mapping[str, frozenset[str]]
    #: Index options of the file, in uv's form.
    options: tuple[str, ...] = ()


def lacks_files(package: Package) -> bool:
    """Return True if the index decides which files a package has."""
    if package.source:
        return False
    if package.source_only:
        return package.sdist is None or not package.sdist.url
    return not package.wheels or not any(wheel.url for wheel in package.wheels)


def find_files(
    uv: Uv, target: Target, pins: Pins, recent: Recent, *, offline: bool, jobs: int
) -> Lock:
    """Return the lock with the files from its index. Raises `UndecidedError` without an answer.

    A version that the index does not have is not an error: its `unknown` has the reason. Neither is
    one missing answer of several indexes.
    """
    incomplete = [package for package in pins.lock.packages if lacks_files(package)]
    if not incomplete:
        return pins.lock
    names = {package.name for package in incomplete}
    entries, away = _Lookup(uv, target, pins.options, recent, offline, jobs).all(incomplete)
    return replace(
        pins.lock,
        away=away,
        packages=tuple(
            _add_files(
                package, entries.get(package.name), pins.hashes.get(package.name, frozenset())
            )
            if package.name in names
            else package
            for package in pins.lock.packages
        ),
    )


class _Lookup(Struct, frozen=True):
    """Lookups by uv of versions, in one call where possible."""

    uv: Uv
    target: Target
    options: tuple[str, ...]
    recent: Recent
    offline: bool
    jobs: int

    def all(
        self, packages: Sequence[Package]
    ) -> tuple[Mapping[str, Package | str], tuple[str, ...]]:
        """Return name → its entry, or the reason why none is known; and indexes without an answer.

        Versions that the index does not have are left out. The indexes may answer later.
        """
        torch = None if self.options else torch_backend(self.target) or _torch(packages)
        groups: dict[tuple[str | None, str | None], list[Package]] = {}
        for package in packages:
            backend = torch if package.name in TORCH_FAMILY else None
            groups.setdefault((backend, _index(package, self.target)), []).append(package)
        entries: dict[str, Package | str] = {}
        failures: list[UndecidedError] = []
        for (backend, index), group in groups.items():
            try:
                entries |= self._group(group, backend, index)
            except UndecidedError as error:
                failures.append(error)
                entries |= {item.name: error.message.partition(": ")[2] for item in group}
        if len(failures) == len(groups):
            raise failures[0]
        away = sorted({error.host for error in failures if isinstance(error, Unreached)})
        return entries, tuple(away)

    def _group(
        self, group: Sequence[Package], torch: str | None, index: str | None
    ) -> Mapping[str, Package]:
        """Look up all in one call; one by one if the index lacks one of them."""
        found_packages = self._ask(group, torch, index)
        if found_packages is not None:
            return found_packages
        if len(group) == 1:
            return {}
        with ThreadPoolExecutor(max_workers=max(1, self.jobs)) as pool:
            each = pool.map(lambda pin: self._ask([pin], torch, index) or {}, group)
            return {name: package for entries in each for name, package in entries.items()}

    def _ask(
        self, packages: Sequence[Package], torch: str | None, index: str | None
    ) -> Mapping[str, Package] | None:
        """Return name → its entry; None if the index lacks one of them."""
        pins = [f"{package.name}=={package.version}" for package in packages]
        flags = [
            *("--no-deps", "--format=pylock.toml"),
            *(["--offline"] if self.offline else []),
            # As in pip: any index with the pinned version.
            *(["--index-strategy=unsafe-best-match"] if self.options else []),
        ]
        # uv would report a version for late patches alone as missing in the index.
        python = installed_environment(self.target)["python_full_version"]
        arguments = compile_arguments(self.target, torch, flags, python)
        settings = {"index": [{"name": "only", "url": index, "explicit": True}]} if index else {}
        bound = {package.name: "only" for package in packages} if index else {}
        lines = [*self.options, *([] if index else pins)]
        texts = {
            "pins.in": "".join(f"{line}\n" for line in lines),
            "pyproject.toml": project_text(bound, settings, pins if index else []),
        }
        machine = local_state(os.environ, {}, self.options, [index] if index else [])
        key = sha256(
            repr(("lookup", self.uv.version, arguments, texts, machine)).encode()
        ).hexdigest()
        answer = self.recent.get(key)
        if answer is None:
            with scratch("audit") as folder:
                for file, text in texts.items():
                    (folder / file).write_text(text)
                builder = self.uv.interpreter(self.target.python, folder.parent)
                found = [f"--python={builder}"] if builder else []
                process = self.uv.run([*arguments, *found, "--", *texts], folder, self.options)
            answer = without_login(process.stdout).encode()
            if process.returncode != 0:
                error = explain_failure(self.target, process.stderr)
                if not isinstance(error, NoSolution) or self.offline:
                    raise error
                answer = b""
            self.recent.put(key, answer)
        if not answer:
            return None
        lock, _ = entries_of(answer, Path("pylock.toml"), "the index's answer")
        return {package.name: package for package in lock.packages}


def _index(package: Package, target: Target) -> str | None:
    """Return the explicit index of a package; None for the machine's default ones."""
    if package.index is not None and not _DEFAULT.fullmatch(package.index):
        return package.index
    return index_of(package.name, target)


def _torch(packages: Sequence[Package]) -> str | None:
    """Return uv's name for the torch builds that a lock pins by local versions, if it has one."""
    pins = (_TORCH.search(package.version) for package in packages if package.name in TORCH_FAMILY)
    return next((pin[1] for pin in pins if pin), None)


def _add_files(package: Package, entry: Package | str | None, hashes: frozenset[str]) -> Package:
    pin = f"{package.name} {package.version}"
    if entry is None:
        return replace(package, wheels=(), unknown=package.unknown or f"the index has no {pin}")
    package = replace(package, unknown="")
    if isinstance(entry, str):
        return replace(package, wheels=(), unknown=entry)
    index = package.index or entry.index
    mismatch = f"the index has {pin} with other hashes than the lock"
    if package.wheels or package.sdist is not None:
        by_hash: dict[str, LockedFile] = {file.sha256: file for file in entry.wheels}
        if entry.sdist is not None:
            by_hash[entry.sdist.sha256] = entry.sdist
        wheels = tuple(_add_url(wheel, by_hash) for wheel in package.wheels)
        sdist = _add_url(package.sdist, by_hash) if package.sdist is not None else None
        if entry.wheels and wheels and not any(wheel.url for wheel in wheels):
            return replace(package, index=index, wheels=(), unknown=mismatch)
        return replace(package, index=index, wheels=wheels, sdist=sdist)
    sdist = entry.sdist if entry.sdist is not None and _allows(hashes, entry.sdist) else None
    if not entry.wheels:
        return replace(package, index=index, source_only=True, sdist=sdist)
    wheels = tuple(wheel for wheel in entry.wheels if _allows(hashes, wheel))
    if not wheels and sdist is None:
        return replace(package, index=index, wheels=(), unknown=mismatch)
    return replace(package, index=index, wheels=wheels, source_only=not wheels, sdist=sdist)


def _allows(hashes: frozenset[str], file: LockedFile) -> bool:
    return not hashes or file.sha256 in hashes


def _add_url(file: File, by_hash: Mapping[str, LockedFile]) -> File:
    listed = by_hash.get(file.sha256)
    if listed is None:
        return file
    return replace(file, url=listed.url, size=listed.size)
