"""Debian packages: installed through apt, or unpacked into a folder of the stack's own.

Newer suites than the machine's are read with a private apt configuration (its own
lists, cache and sources), so the machine's package state never learns of them. The
mirror is the one the machine's apt is configured with, read at run time.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import StackError, UnsupportedMachine
from .layout import Layout, system_path
from .process import output, run
from .progress import say

# Debian's suites after bookworm, whose Docker and registry run on bookworm's libc.
NEWER_SUITES = ("trixie", "forky")
# Signs every suite of the main archive; shipped by Debian's package debian-archive-keyring.
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Where Debian's package mmdebstrap has the scripts that it runs between its steps.
_HOOKS = Path("/usr/share/mmdebstrap/hooks")


def require_debian_root(purpose: str) -> None:
    """Raise unless packages can be installed here."""
    if os.geteuid() != 0:
        raise UnsupportedMachine(
            f"{purpose} needs root; run this as root, or install Docker 25 or newer "
            "with the buildx plugin and start it."
        )
    if _os_release().get("ID") != "debian" or not shutil.which("apt-get"):
        raise UnsupportedMachine(
            f"{purpose} is only automated on Debian; install Docker 25 or newer "
            "with the buildx plugin and start it."
        )


def require_space(folder: Path, gigabytes: float) -> None:
    """Raise when the disk under the folder is too full."""
    free = shutil.disk_usage(folder).free / 1e9
    if free < gigabytes:
        raise StackError(
            f"Only {free:.1f} GB are free under {folder}, {gigabytes:.0f} GB are needed; "
            "free some, or point BUILDMATRIX_CACHE to a larger disk."
        )


def architecture() -> str:
    """Debian's name for this machine's architecture."""
    return (output(["dpkg", "--print-architecture"]) or "").strip()


def _os_release() -> dict[str, str]:
    """The machine's own description of its distribution."""
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def mirror() -> str:
    """The address of the main Debian archive that this machine's apt uses."""
    codename = _os_release().get("VERSION_CODENAME", "")
    template = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    listing = output(["apt-get", "indextargets", "--format", template, "Created-By: Packages"])
    for line in (listing or "").splitlines():
        uri, _, rest = line.partition(" ")
        if rest.split() == [codename, "main"]:
            return uri.rstrip("/")
    raise StackError(f"apt has no source for the suite {codename} main; add one to its sources.")


def keyring() -> Path | None:
    """The archive's keyring, None to leave the choice to apt."""
    return _KEYRING if _KEYRING.exists() else None


def source(suites: Iterable[str]) -> str:
    """Return the machine's main archive as a source of `suites`, in deb822 form."""
    signed_by = f"Signed-By: {_KEYRING}\n" if keyring() else ""
    return (
        f"Types: deb\nURIs: {mirror()}\nSuites: {' '.join(suites)}\nComponents: main\n{signed_by}"
    )


def acquire_settings() -> str:
    """Return how this machine's apt downloads (proxies, certificates), as a configuration file."""
    return output(["apt-config", "dump", "--format", '%F "%v";%n', "Acquire"]) or ""


def ensure_programs(packages: dict[str, str], layout: Layout) -> None:
    """Install, with the machine's own apt, the packages whose program is missing."""
    missing = [name for name, program in packages.items() if not find_program(program)]
    if not missing:
        return
    require_debian_root(f"Installing {', '.join(missing)}")
    say(f"apt: installing {', '.join(missing)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    wait = ["-o", "DPkg::Lock::Timeout=300"]
    run(
        ["apt-get", *wait, "update"],
        log=layout.log("apt-update"),
        why="apt cannot reach its package sources",
        env=env,
    )
    run(
        ["apt-get", *wait, "install", "--yes", "--no-install-recommends", *missing],
        log=layout.log("apt-install"),
        why=f"apt cannot install {', '.join(missing)}",
        env=env,
    )


def find_program(program: str) -> str | None:
    """The path of a program, looked for in the administration folders too."""
    return shutil.which(program, path=system_path())


@dataclass(frozen=True)
class Package:
    """One version of a package as a suite offers it."""

    name: str
    version: str
    depends: str
    sha256: str

    def needs_libc(self) -> str:
        """The least libc6 it says it needs, empty when it says nothing."""
        for clause in self.depends.split(","):
            name, _, bound = clause.strip().partition(" ")
            if name == "libc6" and bound.startswith("(>="):
                return bound.strip("()>= ")
        return ""

    def dependencies(self) -> list[str]:
        """The packages it depends on, of alternatives the first."""
        clauses = (clause.partition("|")[0].split() for clause in self.depends.split(","))
        return [words[0].partition(":")[0] for words in clauses if words]


class Archive:
    """Suites of the machine's mirror, read without touching the machine's apt state.

    Get one from `archive`, which reads the package lists.
    """

    def __init__(self, suites: Sequence[str], layout: Layout) -> None:
        self._suites = tuple(dict.fromkeys(suites))
        key = hashlib.sha256(" ".join(self._suites).encode()).hexdigest()[:8]
        self._folder = layout.cache / "apt" / key
        self._layout = layout
        self._env = {**os.environ, "APT_CONFIG": str(self._folder / "apt.conf")}

    @property
    def source(self) -> Path:
        """The sources file; it names the mirror and is made anew by every `update`."""
        return self._folder / "debian.sources"

    def update(self) -> None:
        """Read the suites' package lists anew."""
        for part in ("state/lists/partial", "cache/archives/partial"):
            (self._folder / part).mkdir(parents=True, exist_ok=True)
        (self._folder / "status").touch()
        self.source.write_text(source(self._suites), encoding="utf-8")
        settings = {
            "Dir::State": self._folder / "state",
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder / "cache",
            "Dir::Etc::sourcelist": self.source,
            "Dir::Etc::sourceparts": "/dev/null",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            # What desktops show of packages is larger than the lists.
            **{
                f"Acquire::IndexTargets::deb::{name}::DefaultEnabled": "false"
                for name in ("DEP-11", "Contents-deb", "CNF")
            },
            "Acquire::Retries": "3",
            "APT::Update::Error-Mode": "any",  # else a mirror out of reach is but a warning
        }
        lines = [f'{key} "{value}";\n' for key, value in settings.items()]
        (self._folder / "apt.conf").write_text("".join(lines), encoding="utf-8")
        run(
            ["apt-get", "update"],
            log=self._layout.log("apt-newer-update"),
            why=f"apt cannot read the suites {', '.join(self._suites)}",
            env=self._env,
        )

    def newest(self, name: str, fits: Callable[[Package], bool] = lambda _: True) -> Package:
        """The newest version of a package that fits."""
        text = output(["apt-cache", "show", name], env=self._env) or ""
        best: Package | None = None
        for stanza in text.split("\n\n"):
            fields = {k: v.strip() for k, _, v in (x.partition(":") for x in stanza.splitlines())}
            if fields.get("Package") != name:
                continue
            offer = Package(name, fields["Version"], fields.get("Depends", ""), fields["SHA256"])
            if fits(offer) and (best is None or _newer(offer.version, best.version)):
                best = offer
        if best is None:
            raise StackError(f"No usable version of {name} in {', '.join(self._suites)}.")
        return best

    def download(self, packages: Iterable[Package]) -> list[Path]:
        """The packages' files, each checked against the digest in the signed index."""
        wanted = list(packages)
        with tempfile.TemporaryDirectory(dir=self._layout.drafts) as folder:
            run(
                ["apt-get", "download", *(f"{p.name}={p.version}" for p in wanted)],
                log=self._layout.log("apt-download"),
                why="apt cannot download packages",
                env=self._env,
                cwd=Path(folder),
            )
            by_digest = {sha256(path): path for path in Path(folder).glob("*.deb")}
            kept = []
            for package in wanted:
                if package.sha256 not in by_digest:
                    raise StackError(
                        f"{package.name} {package.version} arrived with a wrong digest."
                    )
                target = self._folder / "cache" / "archives" / f"{package.sha256}.deb"
                kept.append(by_digest[package.sha256].replace(target))
        return kept

    def download_with_dependencies(self, names: Sequence[str], folder: Path) -> list[Path]:
        """Packages and all that they depend on, into the empty `folder`; apt checks the digests."""
        (folder / "partial").mkdir()
        options = [f"Dir::Cache::archives={folder}", "Debug::NoLocking=1"]
        run(
            [
                *("apt-get", "install", "--yes", "--no-install-recommends", "--download-only"),
                *(part for option in options for part in ("-o", option)),
                *names,
            ],
            log=self._layout.log("apt-download"),
            why=f"apt cannot download {', '.join(names)}",
            env=self._env,
        )
        return sorted(folder.glob("*.deb"))


def bootstrap(suite: str, include: Sequence[str], root: Path, layout: Layout) -> None:
    """Make a minimal root file system of a suite in the new folder `root`."""
    ensure_programs({"mmdebstrap": "mmdebstrap"}, layout)
    options = [
        "--variant=minbase",
        # /bin and /lib are links into /usr before the first package is unpacked.
        f"--hook-directory={_HOOKS / 'merged-usr'}",
        f"--include={','.join(('usr-is-merged', *include))}",
        *([f"--keyring={_KEYRING}"] if keyring() else []),
    ]
    run(
        ["mmdebstrap", *options, suite, root, mirror()],
        log=layout.log(f"mmdebstrap-{suite}-{os.getpid()}"),
        why=f"mmdebstrap cannot make {suite}",
    )


@functools.cache
def archive(suites: tuple[str, ...], layout: Layout) -> Archive:
    """The suites with their package lists, which are read once per command."""
    say(f"apt: reading the package lists of {', '.join(suites)}")
    found = Archive(suites, layout)
    found.update()
    return found


def unpack(deb: Path, folder: Path) -> None:
    """Unpack a package's files, running none of its scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    if output(["dpkg", "-x", deb, folder], timeout=300) is None:
        raise StackError(f"dpkg cannot unpack {deb}.")


def runs_on_this_libc(package: Package) -> bool:
    """Whether the machine's libc is as new as the package asks."""
    needed = package.needs_libc()
    here = output(["dpkg-query", "-W", "-f", "${Version}", "libc6"]) or "0"
    return not needed or not _newer(needed, here)


def _newer(left: str, right: str) -> bool:
    """Whether version `left` is later than `right` in Debian's order."""
    return output(["dpkg", "--compare-versions", left, "gt", right]) is not None


def sha256(path: Path) -> str:
    """The file's digest in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
