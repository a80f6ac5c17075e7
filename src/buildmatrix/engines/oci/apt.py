"""Debian packages that apt resolves and fetches for a base, in folders of its own.

apt reads the package lists, keys and state of the base. Neither settings of the base, which may
name programs, nor those of this machine count, except how it reaches servers.

Formats: apt.conf(5), sources.list(5).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from buildmatrix.child import bare_environment
from buildmatrix.engines.oci.base_files import BaseFiles
from buildmatrix.errors import UndecidedError

#: What has to be on this machine.
PROGRAMS: Final = ("apt-get", "apt-config", "dpkg-deb")
#: Seconds that apt may take for one command.
_PATIENCE: Final = 600.0
_INSTALLS = re.compile(r"Inst (\S+) (\[[^\]]*\] )?\((\S+) ")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!$)")
#: Options of sources.list(5), in both of its forms, with the words that apt takes for yes.
_UNSIGNED = re.compile(
    r"\b(trusted|allow-insecure|allow-weak|allow-downgrade-to-insecure)\s*[=:]\s*"
    r"(yes|true|with|on|enable|[1-9])",
    re.I,
)


def fetched(
    base: BaseFiles, architecture: str, names: Sequence[str], status: bytes, folder: Path
) -> tuple[set[str], list[Path]]:
    """Names of the packages that `base` lacks of `names` and all that they need, and their files.

    `status` is what its dpkg has, and `folder` where apt may write. Raises UndecidedError.
    """
    configuration = _configure(base, architecture, status, folder)

    def apt(*arguments: str) -> str:
        return _output(["apt-get", *arguments], {"APT_CONFIG": str(configuration)})

    apt("update")
    install = ["install", "--yes", "--no-install-recommends"]
    plan = apt(*install, "--simulate", *names)
    for line in plan.splitlines():
        if line.startswith("Remv "):
            raise UndecidedError(f"{line.split()[1]} of the base would have to be removed")
    installs = _INSTALLS.findall(plan)
    for name, before, _ in installs:
        if before:
            raise UndecidedError(f"{name} of the base would have to be replaced by another one")
    if not installs:
        return set(), []
    apt(*install, "--download-only", *names)
    debs = list((folder / "cache" / "archives").glob("*.deb"))
    return {name.partition(":")[0] for name, *_ in installs}, debs


def _configure(base: BaseFiles, architecture: str, status: bytes, folder: Path) -> Path:
    """The base's sources, keys and state, in folders that apt may write to."""
    for name in ("state/lists/partial", "cache/archives/partial", "etc"):
        (folder / name).mkdir(parents=True)
    (folder / "status").write_bytes(status)
    sources = 0
    for path, entry in base.entries.items():
        top = next((top for top in ("etc/apt/", "usr/share/keyrings/") if path.startswith(top)), "")
        # Settings of the base may name programs, which would run on this machine.
        if entry.kind != "file" or not top or path.startswith(("etc/apt/apt.conf", "etc/apt/auth")):
            continue
        data = base.read(path) or b""
        if path.endswith((".list", ".sources")):
            data = _checked_sources(path, data, folder).encode()
            sources += 1
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    if not sources:
        raise UndecidedError("the base image names no archive of packages in /etc/apt")
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc": folder / "etc" / "apt",
        "Dir::Log": folder,
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",
        "APT::Get::Assume-Yes": "true",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "true",
    }
    lines = [f'{key} "{value}";\n' for key, value in settings.items()]
    # How this machine reaches servers is its own: proxies and certificates.
    for line in _output(["apt-config", "dump"], {}).splitlines():
        if line.startswith(("Acquire::http::", "Acquire::https::")) and line.endswith(";"):
            lines.append(f"{line}\n")
    (folder / "apt.conf").write_text("".join(lines))
    return folder / "apt.conf"


def _checked_sources(path: str, data: bytes, folder: Path) -> str:
    """A list of archives whose keys are those in `folder`. Raises UndecidedError.

    apt has methods that read files and run programs of this machine.
    """
    text = data.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for word in " ".join(lines).split():
        scheme = _SCHEME.match(word)
        if scheme and scheme[1] not in ("http", "https"):
            raise UndecidedError(f"/{path} of the base names {word[:100]!r}, and no web address")
    if _UNSIGNED.search("\n".join(lines)):
        raise UndecidedError(f"/{path} of the base trusts an archive without a signature")
    keys = r"(?<=[=\s,])/(?=(?:usr/share|etc/apt)/(?:keyrings|trusted\.gpg\.d)/)"
    return re.sub(keys, f"{folder}/", "\n".join(lines) + "\n")


def _output(command: Sequence[str], settings: Mapping[str, str]) -> str:
    environment = {
        **bare_environment(with_network=True),
        # A file of this machine's own, with its proxies.
        **{name: os.environ[name] for name in ("APT_CONFIG",) if name in os.environ},
        **settings,
        "LC_ALL": "C",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    try:
        run = subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, errors="replace",
            timeout=_PATIENCE, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise UndecidedError(f"{command[0]} {command[1]} cannot be run: {error}") from error
    if run.returncode:
        lines = [line[3:] for line in run.stderr.splitlines() if line.startswith("E: ")]
        why = "; ".join(lines) or run.stderr.strip()[-300:] or f"exit code {run.returncode}"
        raise UndecidedError(f"{command[0]} {command[1]} failed: {why}")
    return run.stdout


def missing_programs() -> list[str]:
    """Those of `PROGRAMS` that this machine has not."""
    return [name for name in PROGRAMS if shutil.which(name) is None]
