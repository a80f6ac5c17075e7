"""PEP 751 locks, ours or other tools', validated and read as one target would install them.

Format: https://packaging.python.org/en/latest/specifications/pylock-toml/. Optional fields (`size`,
`index`, our own `[tool.buildmatrix]`) may be missing; present ones must be valid.

The table has the data that PEP 751 has no place for or uv does not write: the inputs of the
resolution, and for each package its index and its askers. Other installers ignore it.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from packaging.utils import canonicalize_name

from buildmatrix.base import toml
from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.parsing import version_or_none
from buildmatrix.base.text import path_in, without_login
from buildmatrix.base.toml import mapping, string, strings, tables, tool_table, written, written_key
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.locks.conda_packages import channel_of, file_parts
from buildmatrix.locks.lines import (
    address_of,
    byte_count,
    check_count,
    decode,
    load_toml,
    read_bytes,
    table_lines,
)
from buildmatrix.locks.lock_file import CommandInputs, LockFile, command_of
from buildmatrix.locks.model import CondaPackage, Lock, LockedFile, Package, Sdist, Wheel
from buildmatrix.locks.plan import torch_backend
from buildmatrix.locks.requirement_lines import RequirementSet
from buildmatrix.locks.selection import BrokenMarker, python_platform
from buildmatrix.matrix.model import LOCK_HEADER, Target

# Inputs. The values are stored one by one, so that a stale lock can name the changed one. The
# machine is not an input: neither its interpreter, nor its uv, nor its mirrors.


#: Prefix of the keys of files.
FILE_PREFIX = "file "


def input_values(root: Path, target: Target, requirements: RequirementSet) -> dict[str, str]:
    """Return name → value of every input: files as `file <path>` with sha256, and target values."""
    values = {FILE_PREFIX + file: _sha256(data) for file, data in requirements.files.items()}
    values |= _uv_settings(root)
    values |= {
        "python": target.python,
        "platform": python_platform(target),
        "requirements": " ".join(target.requirements),
        "pyproject": target.pyproject or "",
        "extras": " ".join(sorted(target.extras)),
        "drop": " ".join(sorted(target.drop)),
        "no-binary": " ".join(sorted(target.no_binary)),
        "torch": torch_backend(target) or "",
    }
    values |= {f"replace {name}": twin for name, twin in target.replace.items()}
    values |= {f"index {family}": without_login(url) for family, url in target.index.items()}
    return {key: values[key] for key in sorted(values)}


def inputs_digest(values: Mapping[str, str]) -> str:
    """Return the digest of `input_values`, `sha256:<hex>`."""
    return _sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())


def difference(then: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Return the first input that changed, in words; None if all are equal."""
    for key in sorted({*then, *now}, key=lambda key: (not key.startswith(FILE_PREFIX), key)):
        if then.get(key) == now.get(key):
            continue
        if key.startswith(FILE_PREFIX):
            file = key.removeprefix(FILE_PREFIX)
            if key not in then:
                return f"{file} is an input now and was not when the lock was made"
            if key not in now:
                return f"{file} was an input when the lock was made and is not now"
            return f"{file} changed since the lock was made"
        was, now_is = then.get(key) or "not set", now.get(key) or "not set"
        return f"`{key}` was {was} when the lock was made and is {now_is} now"
    return None


def _uv_settings(root: Path) -> dict[str, str]:
    """Return uv's settings beside the specification: they can have constraints and indexes."""
    settings = root / "uv.toml"
    if settings.is_file():
        return {f"{FILE_PREFIX}uv.toml": _sha256(settings.read_bytes())}
    project = root / "pyproject.toml"
    if not project.is_file():
        return {}
    data = project.read_bytes()
    try:
        tool = toml.loads(data.decode()).get("tool")
    except (UnicodeDecodeError, toml.TomlError):
        return {}  # uv reports it when it resolves.
    has_settings = isinstance(tool, dict) and "uv" in tool
    return {f"{FILE_PREFIX}pyproject.toml": _sha256(data)} if has_settings else {}


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


SCHEMA = 1


class Origin(Struct, frozen=True):
    """Origin of one package."""

    index: str | None
    via: tuple[str, ...]


def document(body: str, uv: str, inputs: Mapping[str, str], origins: Mapping[str, Origin]) -> str:
    """Return the whole file, from uv's output `body` and further data.

    It does not name its target: targets with equal requirements have equal locks, which Docker's
    cache takes for one input of the step that installs them.
    """
    lines = [
        "[tool.buildmatrix]",
        f"schema = {SCHEMA}",
        _format("uv", uv),
        _format("inputs-digest", inputs_digest(inputs)),
        "",
        "[tool.buildmatrix.inputs]",
        *(_format(key, value) for key, value in inputs.items()),
        "",
        "[tool.buildmatrix.packages]",
        *(_format(name, _make_origin(origins[name])) for name in sorted(origins)),
    ]
    return without_login(f"{LOCK_HEADER}{body.strip()}\n\n" + "\n".join(lines) + "\n")


def _format(name: str, value: object) -> str:
    return f"{written_key(name)} = {written(value)}"


def _make_origin(origin: Origin) -> Mapping[str, object]:
    index = {} if origin.index is None else {"index": origin.index}
    return {**index, "via": origin.via}


def taken_document(
    label: str,
    packages: Sequence[Package],
    decided: Collection[str],
    conda: Sequence[CondaPackage] = (),
) -> str:
    """Return the lock of a target that was taken from the project's lock `label`.

    It has no lines of files: the installation changes with the files of the packages alone. Conda's
    packages are in the form of an explicit environment, one a line, which templates/_macros.j2
    reads.
    """
    lines = [
        f"# Taken by `buildmatrix lock` from {label}. Do not edit: change that lock instead.",
        'lock-version = "1.0"',
        'created-by = "buildmatrix"',
        *([] if packages else ["packages = []"]),
    ]
    for package in sorted(packages, key=lambda package: package.name):
        lines += ["", "[[packages]]", _format("name", package.name)]
        lines += [_format("version", package.version)] if package.version else []
        lines += [_format("index", package.index)] if package.index else []
        lines += [_format("sdist", _make_table(package.sdist))] if package.sdist is not None else []
        if package.wheels:
            lines += [
                "wheels = [",
                *(f"    {written(_make_table(w))}," for w in package.wheels),
                "]",
            ]
    lines += ["", "[tool.buildmatrix]", f"schema = {SCHEMA}", _format("decided", sorted(decided))]
    files = [f"{item.file.url}#sha256:{item.file.sha256}" for item in conda if item.file]
    lines += ["conda = [", *(f"    {written(file)}," for file in files), "]"] if conda else []
    lines += ["", "[tool.buildmatrix.packages]"]
    for package in (*packages, *conda):
        via = sorted({re.sub(r":\d+$", "", asker) for asker in package.via})
        lines.append(_format(package.name, {"via": via}))
    return without_login("\n".join(lines) + "\n")


def _make_table(file: LockedFile) -> Mapping[str, object]:
    size = {} if file.size is None else {"size": file.size}
    return {"name": file.filename, "url": file.url, **size, "hashes": {"sha256": file.sha256}}


# Validation


_HINT = "restore it, or run `buildmatrix lock`"
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Sources of an entry (PEP 751); one of these.
_FILES = ("wheels", "sdist", "archive", "vcs", "directory")
_MISSING_ENTRY: Mapping[str, object] = {}


class LockRecord(Struct, frozen=True):
    """Content of `[tool.buildmatrix]`; empty if another tool wrote the lock."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def read_lock(path: Path) -> Lock:
    """Read and validate a lock. Raises `SpecError` with all of its problems."""
    return read_lock_and_record(path)[0]


def read_lock_and_record(path: Path) -> tuple[Lock, LockRecord]:
    """Return the lock with buildmatrix's own record in it."""
    data = read_bytes(path, str(path), "run `buildmatrix lock`")
    return entries_of(data, path, str(path))


def entries_of(data: bytes, path: Path, label: str) -> tuple[Lock, LockRecord]:
    """Return the entries of a lock, and buildmatrix's own record in it.

    `label` is the name of the file in messages; `path` is only recorded in the lock. Raises
    `SpecError` with all problems.
    """
    text = decode(data, label)
    document = load_toml(text, label, _HINT)
    lock, record = entries_in(text, document, path, label, lambda _: True)
    return replace(lock, digest="sha256:" + hashlib.sha256(data).hexdigest()), record


def entries_in(
    text: str,
    document: Mapping[str, object],
    path: Path,
    label: str,
    keep: Callable[[Mapping[str, object]], bool],
) -> tuple[Lock, LockRecord]:
    """Return the entries of `document` that `keep` accepts; the lock has no digest yet.

    All entries are validated.
    """
    reader = _PylockReader(label)
    lock = reader.lock(path, text, document, keep)
    if reader.problems:
        raise SpecError(reader.problems)
    return lock, reader.record


class _PylockReader:
    """Reads one document and collects its problems."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.record = LockRecord()

    def lock(
        self,
        path: Path,
        text: str,
        document: Mapping[str, object],
        keep: Callable[[Mapping[str, object]], bool],
    ) -> Lock:
        version = document.get("lock-version")
        if not isinstance(version, str) or version.split(".")[0] != "1":
            self.problem(f"`lock-version` is {version!r}, and only 1.x can be read")
        tool = tool_table(document, "buildmatrix")
        self.record = LockRecord(
            inputs={k: v for k, v in mapping(tool.get("inputs")).items() if isinstance(v, str)},
            packages={k: mapping(v) for k, v in mapping(tool.get("packages")).items()},
        )
        packages = document.get("packages")
        if not isinstance(packages, list):
            self.problem("there is not an array `packages`", hint="see PEP 751")
            packages = []
        check_count(len(packages), self.file)
        lines = table_lines(text, "packages", len(packages))
        read = [
            (item, self.package(item, f"packages[{n}]", lines[n]))
            for n, item in enumerate(packages)
        ]
        return Lock(
            path=path,
            packages=tuple(
                package for item, package in read if not isinstance(item, dict) or keep(item)
            ),
            inputs=inputs_digest(self.record.inputs) if self.record.inputs else "",
            digest="",
            conda=tuple(filter(None, map(self.conda_package, strings(tool.get("conda"))))),
            decided=frozenset(strings(tool.get("decided"))),
        )

    def package(self, item: object, place: str, line: int | None) -> Package:
        if not isinstance(item, dict):
            self.problem(f"{place} is not a table")
            item = {}
        name = item.get("name")
        if not isinstance(name, str) or not name or canonicalize_name(name) != name:
            self.problem(f"{place}: `name` is {name!r}, and must be a normalized name (PEP 503)")
            name = "unknown"
        place = f"package `{name}`"
        origin = self.record.packages.get(name, _MISSING_ENTRY)
        index = item.get("index", origin.get("index"))
        wheels = item.get("wheels", [])
        if not isinstance(wheels, list):
            self.problem(f"{place}: `wheels` is not an array")
            wheels = []
        archive = mapping(item.get("archive"))
        files = [wheel for entry in wheels if (wheel := self.wheel(entry, place))]
        if path_in(address_of(archive)).endswith(".whl"):
            files.append(Wheel(*_read_archive_file(archive)))
        return Package(
            name=name,
            version=self.version(item.get("version"), place),
            index=without_login(index) if isinstance(index, str) else None,
            wheels=tuple(files),
            source_only=not wheels and "archive" not in item,
            via=tuple(sorted(strings(origin.get("via")))),
            place=f"{self.file}:{line}" if line else "",
            source="" if files else without_login(_read_source(item)),
            unknown="" if any(map(item.get, _FILES)) else "its lock has no file of it",
            sdist=_read_sdist(item),
        )

    def conda_package(self, line: str) -> CondaPackage | None:
        """Return the package in a line of an explicit environment."""
        url, _, sha256 = line.partition("#sha256:")
        parts = file_parts(url)
        if parts is None or not _SHA256.fullmatch(sha256):
            self.problem(f"`conda` has {line[:80]!r}, which is not a package with its hash", _HINT)
            return None
        name = f"{CONDA_PREFIX}{parts[0]}"
        return CondaPackage(
            name=name,
            version=f"{parts[1]}+{parts[2]}",
            index=channel_of(url),
            wheels=(),
            source_only=False,
            via=tuple(sorted(strings(self.record.packages.get(name, {}).get("via")))),
            file=LockedFile(posixpath.basename(path_in(url)), url, sha256),
            provides=(canonicalize_name(parts[0]),),
        )

    def version(self, value: object, place: str) -> str:
        if value is None:
            return ""  # Allowed for directories and repositories.
        version = version_or_none(string(value))
        if version is None:
            self.problem(f"{place}: `version` is {value!r}, and must be a version (PEP 440)")
        return str(version or "")

    def wheel(self, item: object, place: str) -> Wheel | None:
        entry = mapping(item)
        url = entry.get("url", entry.get("path"))
        if not isinstance(url, str):
            self.problem(f"{place}: a wheel has neither `url` nor `path`")
            return None
        filename = string(entry.get("name")) or posixpath.basename(path_in(url))
        if not filename.endswith(".whl") or "/" in filename:
            self.problem(f"{place}: `{filename}` is not a valid name of a wheel")
        sha256 = mapping(entry.get("hashes")).get("sha256")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            self.problem(f"{place}: `{filename}` has no sha256 hash", hint="lock it with hashes")
            return None
        return Wheel(
            filename=filename,
            url=without_login(url),
            sha256=sha256,
            size=byte_count(entry.get("size")),
        )

    def problem(self, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(message, self.file, hint=hint))


def _read_sdist(item: Mapping[str, object]) -> Sdist | None:
    """Return the source distribution of an entry: of an index, or an archive."""
    table = mapping(item.get("sdist")) or mapping(item.get("archive"))
    if not table or path_in(address_of(table)).endswith(".whl"):
        return None
    return Sdist(*_read_archive_file(table))


def _read_archive_file(archive: Mapping[str, object]) -> tuple[str, str, str, int | None]:
    """Return the name, URL, hash and size of a file; older tools gave an archive no hash."""
    address = address_of(archive)
    sha256 = string(mapping(archive.get("hashes")).get("sha256"))
    return (
        string(archive.get("name")) or posixpath.basename(path_in(address)),
        without_login(address),
        sha256 if _SHA256.fullmatch(sha256) else "",
        byte_count(archive.get("size")),
    )


def _read_source(item: Mapping[str, object]) -> str:
    """Return the source of an entry without wheels, unless it is a file of an index."""
    repository = mapping(item.get("vcs"))
    if repository:
        kind, commit = string(repository.get("type")), string(repository.get("commit-id"))
        return f"{kind}+{address_of(repository)}@{commit}"
    return address_of(mapping(item.get("directory")) or mapping(item.get("archive")))


# One target's part (the specification's section "Installation")


def read(file: LockFile) -> Lock:
    """Return the packages of a `pylock.toml` for the target.

    Raises `SpecError` for a lock that is broken, or for other targets only.
    """
    selection, document = file.selection, file.document
    extras, groups = (
        set(map(canonicalize_name, strings(document.get(key))))
        for key in ("extras", "dependency-groups")
    )
    default = set(map(canonicalize_name, strings(document.get("default-groups"))))
    # A default group need not be selectable (PEP 751, `default-groups`).
    selection.check(extras, groups | default)
    with_defaults = selection.with_defaults(default)
    with_defaults.check_python(string(document.get("requires-python")))
    try:
        with_defaults.check_environment(strings(document.get("environments")), "environments")
    except BrokenMarker as error:
        problem = f"`environments` has an invalid marker: {error}"
        raise SpecError([Problem(problem, selection.label)]) from error
    via: dict[str, set[str]] = {}
    inputs = CommandInputs(selection, command_of(file.text))

    def keep(item: Mapping[str, object]) -> bool:
        try:
            fits = with_defaults.fits(string(item.get("marker")), with_defaults.extras)
        except BrokenMarker as error:
            name = item.get("name")
            problem = Problem(
                f"package `{name}`: its `marker` is not valid: {error}", selection.label
            )
            raise SpecError([problem]) from error
        if fits:
            with_defaults.check_python(
                string(item.get("requires-python")), f"package `{item.get('name')}`"
            )
            for dependency in tables(item.get("dependencies")):
                via.setdefault(string(dependency.get("name")), set()).add(string(item.get("name")))
        return fits

    lock, _ = entries_in(file.text, document, selection.path, selection.label, keep)
    _check_names(lock.packages, selection.label)
    return replace(
        lock,
        digest=file.digest,
        left_out=with_defaults.left_out(extras, groups),
        packages=tuple(
            replace(
                package,
                via=package.via
                or tuple(sorted({*via.get(package.name, ()), *inputs.places(package.name)})),
                source_only=not package.wheels,
            )
            for package in lock.packages
        ),
    )


def _check_names(packages: Sequence[Package], label: str) -> None:
    """Raise `SpecError` if one selection has two entries of a name, as PEP 751 demands."""
    seen: dict[str, Package] = {}
    problems = []
    for package in packages:
        other = seen.setdefault(package.name, package)
        if other is not package:
            entries = " and ".join(
                f"{one.version or 'an entry'}" + (f" ({one.place})" if one.place else "")
                for one in (other, package)
            )
            problem = f"two entries of `{package.name}` are for one target: {entries}"
            problems.append(Problem(problem, label, hint="ask for other extras, or lock again"))
    if problems:
        raise SpecError(problems)
