"""Base images under the names real users pull, made here and pushed to the registry.

`bases.toml` says what each one holds. A base is built once: the digest of its recipe is
recorded with the digests of what was pushed, and while both agree it is reused.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import tempfile
import threading
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import apt, wheels
from .errors import StackError, UnsupportedMachine
from .layout import Layout
from .process import replace, run, unmount
from .progress import say
from .registry import Registry

_TABLE = Path(__file__).with_name("bases.toml")
_RECIPE_VERSION = 1  # raise it when this module builds the same table differently
_GIGABYTES = 4
_LABEL = "io.buildmatrix.stand-in"
# What Debian's own slim images leave out too.
_NOT_IN_AN_IMAGE = (
    "dev/*",
    "var/cache/apt/*",
    "var/lib/apt/lists/*",
    "var/log/*",
    "usr/share/doc/*",
    "usr/share/info/*",
    "usr/share/locale/*",
    "usr/share/man/*",
)
_LOAD = "import ctypes, sys; [ctypes.CDLL(name) for name in sys.argv[1:]]"


@dataclass(frozen=True)
class Newer:
    """Packages of newer suites, unpacked into a folder; what they need is installed."""

    suites: tuple[str, ...]
    packages: tuple[str, ...]
    leave_out: tuple[str, ...]  # dependencies that nothing here needs
    into: str


@dataclass(frozen=True)
class Base:
    """One base image as `bases.toml` describes it."""

    name: str
    title: str
    tags: tuple[str, ...]
    parent: str = ""  # the base it starts from
    bootstrap: str = ""  # without a parent: the Debian suite to bootstrap, else from scratch
    include: tuple[str, ...] = ()  # what the bootstrap adds to Debian's minimal set
    packages: tuple[str, ...] = ()  # installed by the image's own apt
    remove: tuple[str, ...] = ()
    newer: Newer | None = None
    wheels: tuple[wheels.Wheel, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    loads: tuple[str, ...] = ()  # sonames that the finished image must be able to load
    command: str = "bash"
    optional: bool = False  # made only when asked for by name

    @classmethod
    def of_table(cls, entry: Mapping[str, Any]) -> Base:
        """One entry of the table."""
        values = _tuples(entry)
        values["wheels"] = tuple(wheels.Wheel(**wheel) for wheel in entry.get("wheels", ()))
        if "newer" in entry:
            values["newer"] = Newer(**_tuples(entry["newer"]))
        return cls(**values)


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A table's values with its arrays made immutable."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}


def read_table() -> dict[str, Base]:
    """The bases by name, in building order."""
    with _TABLE.open("rb") as handle:
        entries = tomllib.load(handle)["base"]
    return {base.name: base for base in map(Base.of_table, entries)}


class Builder:
    """Brings the registry up to the table."""

    def __init__(self, layout: Layout, registry: Registry) -> None:
        self._layout = layout
        self._registry = registry
        self._table = read_table()
        self._fetching = threading.Lock()

    def missing(self, only: Collection[str] = (), also: Collection[str] = ()) -> list[Base]:
        """Return the bases to build: those of `only`, else all but optional ones, and `also`.

        Parents of these are among them.
        """
        unknown = {*only, *also} - set(self._table)
        if unknown:
            raise StackError(
                f"No base is called {', '.join(sorted(unknown))}; "
                f"bases.toml has {', '.join(self._table)}."
            )
        wanted = set(only) or {base.name for base in self._table.values() if not base.optional}
        wanted |= set(also)
        for base in reversed(self._table.values()):
            if base.name in wanted and base.parent:
                wanted.add(base.parent)
        return [b for b in self._table.values() if b.name in wanted and not self.current(b)]

    def ensure(self, only: Collection[str] = (), also: Collection[str] = ()) -> None:
        """Build what is missing; one base that fails does not keep the others back."""
        missing = self.missing(only, also)
        if not missing:
            say("bases: all are in the registry, reused")
            return
        if apt.architecture() != "amd64":
            raise UnsupportedMachine(
                "The stand-in base images exist for amd64 only; use the vendors' images here."
            )
        apt.require_debian_root("Making base images")
        apt.require_space(self._layout.cache, _GIGABYTES)
        prefetch = threading.Thread(target=self._prefetch, args=(missing,), daemon=True)
        prefetch.start()
        problems: dict[str, str] = {}
        for base in missing:
            if base.parent in problems:
                problems[base.name] = f"its parent {base.parent} failed"
                continue
            try:
                self._build(base)
            except StackError as error:
                problems[base.name] = str(error)
                say(f"bases: {base.name} failed")
        prefetch.join()
        if problems:
            lines = "\n".join(f"{name}: {text}" for name, text in problems.items())
            raise StackError(f"{len(problems)} base images could not be made.\n{lines}")

    def digests(self, base: Base) -> dict[str, str | None]:
        """What the registry holds under each of a base's names."""
        return {tag: self._registry.digest(tag) for tag in base.tags}

    def _prefetch(self, bases: Sequence[Base]) -> None:
        """Fetch wheels while the first base is bootstrapped; errors show up in the build."""
        try:
            for base in bases:
                for wheel in base.wheels:
                    self._fetch(wheel)
        except (StackError, OSError) as error:
            say(f"bases: fetching wheels ahead of time stopped: {error}")

    def _fetch(self, wheel: wheels.Wheel) -> Path:
        """A wheel's file; a build that needs it waits for the fetch ahead of time."""
        with self._fetching:
            return wheels.fetch(wheel, self._layout)

    def _record(self, base: Base) -> Path:
        """Where the outcome of a build is remembered."""
        return self._layout.cache / "bases" / f"{base.name}.json"

    def _recipe(self, base: Base) -> str:
        """A digest over all that decides what a base holds, its ancestors included."""
        parent = self._recipe(self._table[base.parent]) if base.parent else ""
        given = {key: value for key, value in asdict(base).items() if value}
        text = json.dumps([_RECIPE_VERSION, parent, given], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def current(self, base: Base) -> bool:
        """Whether the registry still holds what this very recipe made."""
        try:
            record = json.loads(self._record(base).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        wanted = {"recipe": self._recipe(base), "digests": self.digests(base)}
        return bool(record == wanted)

    def _build(self, base: Base) -> None:
        """Make one base and push it under all its names."""
        say(f"bases: making {base.tags[0]}")
        folder = Path(tempfile.mkdtemp(dir=self._layout.drafts))
        try:
            context = folder / "context"
            secrets = folder / "secrets"
            for path in (context / "overlay", secrets):
                path.mkdir(parents=True)
            if base.bootstrap:
                self._bootstrap(base, folder / "root", context / "root.tar")
            steps = self._overlay(base, context / "overlay", secrets)
            replace(context / "Dockerfile", self._dockerfile(base, steps))
            self._push(base, context, secrets)
        finally:
            unmount([folder])
            shutil.rmtree(folder, ignore_errors=True)
        digests = self.digests(base)
        if None in digests.values():
            raise StackError(f"The registry does not hold {base.name} after the push.")
        record = {"recipe": self._recipe(base), "digests": digests}
        replace(self._record(base), json.dumps(record, indent=1) + "\n")

    def _bootstrap(self, base: Base, root: Path, archive: Path) -> None:
        """Make a minimal root file system and pack it."""
        apt.bootstrap(base.bootstrap, base.include, root, self._layout)
        leave_out = [f"--exclude=./{pattern}" for pattern in _NOT_IN_AN_IMAGE]
        options = ["--numeric-owner", "--sort=name", *leave_out]
        run(
            ["tar", "--directory", root, *options, "--create", "--file", archive, "."],
            log=self._layout.log("tar"),
            why="The root file system cannot be packed",
        )
        shutil.rmtree(root)

    def _overlay(self, base: Base, overlay: Path, secrets: Path) -> list[str]:
        """Lay out the files a base adds; return the shell commands that need apt."""
        for wheel in base.wheels:
            wheels.unpack(wheel, self._fetch(wheel), overlay)
        for name, text in base.files.items():
            path = overlay / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name, target in base.links.items():
            path = overlay / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        (secrets / "apt.conf").write_text(apt.acquire_settings(), encoding="utf-8")
        steps = []
        if base.packages:
            steps.append(_apt_get(base.packages))
        if base.newer:
            needed = self._unpack_newer(base.newer, overlay, secrets)
            lists = "-o Dir::Etc::sourcelist=/run/secrets/newer.sources"
            steps.append(_apt_get(needed, f"{lists} -o Dir::Etc::sourceparts=/dev/null"))
        return steps

    def _unpack_newer(self, newer: Newer, overlay: Path, secrets: Path) -> list[str]:
        """Unpack packages of newer suites; return the packages they depend on."""
        archive = apt.archive(newer.suites, self._layout)
        shutil.copy2(archive.source, secrets / "newer.sources")
        packages = [archive.newest(name) for name in newer.packages]
        say("bases: unpacking " + ", ".join(f"{p.name} {p.version}" for p in packages))
        folder = overlay / newer.into.lstrip("/")
        with tempfile.TemporaryDirectory(dir=self._layout.drafts) as name:
            for deb in archive.download(packages):
                apt.unpack(deb, Path(name))
                deb.unlink()
            _merge(Path(name) / "usr/lib/x86_64-linux-gnu", folder / "lib")
            _merge(Path(name) / "usr/bin", folder / "bin")
        names = {name for package in packages for name in package.dependencies()}
        return sorted(names - set(newer.packages) - set(newer.leave_out))

    def _dockerfile(self, base: Base, steps: Sequence[str]) -> str:
        """The Dockerfile of a base."""
        origin = self._registry.prefix + self._table[base.parent].tags[0] if base.parent else ""
        lines = [f"FROM {origin or 'scratch'}"]
        if base.bootstrap:
            lines.append("ADD root.tar /")
        lines.append("COPY overlay/ /")
        for step in steps:
            mounts = "".join(
                f" --mount=type=secret,id={name}" for name in ("apt.conf", "newer.sources")
            )
            lines.append(f"RUN --network=host{mounts} {step}")
        offline = []
        if base.remove:
            offline.append(f"rm -rf {shlex.join(base.remove)}")
        if base.loads:
            offline.append(f"ldconfig && python3 -c {shlex.quote(_LOAD)} {shlex.join(base.loads)}")
        if offline:
            lines.append(f"RUN --network=none {' && '.join(offline)}")
        lines += [f"ENV {name}={json.dumps(value)}" for name, value in base.env.items()]
        lines.append(f"LABEL {_LABEL}={json.dumps(base.title)}")
        lines.append(f"CMD {json.dumps([base.command])}")
        return "\n".join(lines) + "\n"

    def _push(self, base: Base, context: Path, secrets: Path) -> None:
        """Build the context and push the outcome under every name."""
        names = ",".join(self._registry.prefix + tag for tag in base.tags)
        options = [
            "--progress=plain",
            "--allow=network.host",
            "--provenance=false",
            "--sbom=false",
            f'--output=type=image,"name={names}",push=true',
            *(f"--secret=id={path.name},src={path}" for path in sorted(secrets.iterdir())),
        ]
        run(
            [self._layout.bin / "docker", "buildx", "build", *options, context],
            log=self._layout.log(f"build-{base.name}"),
            why=f"The image {base.tags[0]} cannot be built",
            env=self._layout.docker_environment(),
        )


def _apt_get(packages: Sequence[str], options: str = "") -> str:
    """The shell command that installs packages in an image and leaves no lists behind."""
    get = f"APT_CONFIG=/run/secrets/apt.conf DEBIAN_FRONTEND=noninteractive apt-get {options}"
    return (
        f"{get} update && {get} install --yes --no-install-recommends {shlex.join(packages)}"
        " && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*"
        " /usr/share/doc/* /usr/share/man/* /usr/share/locale/*"
    )


def _merge(source: Path, target: Path) -> None:
    """Copy a folder, links as links, if it is there."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
