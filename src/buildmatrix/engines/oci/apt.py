"""Debian packages for a base, resolved and fetched by apt in its own folders.

apt reads the package lists, keys and state of the base. It ignores the settings of the base, which
may name programs, and those of this machine, except for proxies and certificates.

Formats: apt.conf(5), sources.list(5).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from buildmatrix.base.child import bare_environment, run
from buildmatrix.base.errors import UndecidedError
from buildmatrix.engines.oci.base_files import BaseFiles

#: Programs that must be on this machine.
PROGRAMS: Final = ("apt-get", "apt-config", "dpkg-deb")
#: Timeout of an apt command in seconds.
_PATIENCE: Final = 600.0
#: Maximum bytes of memory of an apt command.
_MEMORY: Final = 4 << 30
_INSTALLS = re.compile(r"Inst (\S+) (\[[^\]]*\] )?\((\S+) ")
#: Lists that apt reads: apt-pkg/contrib/fileutl.cc, `GetListOfFilesInDir`.
_SOURCES = re.compile(
    r"etc/apt/sources\.list(?:\.d/[A-Za-z0-9_:-][A-Za-z0-9_.:-]*\.(?:list|sources))?"
)
#: sources.list(5), "One-line-style format": type, options, address, suite, components.
_LINE = re.compile(
    r"(\S+)[ \t]+(?:\[[ \t]*([^\[\]]*?)[ \t]*\][ \t]+)?(\S+)[ \t]+(\S+)((?:[ \t]+\S+)*)"
)
_TRUSTING: Final = ("trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure")
_PLAIN_OPTIONS: Final = ("pdiffs", "by-hash", "check-valid-until", "check-date")
#: Options of a line → fields of a stanza.
_OPTIONS: Final = {
    **{name: name for name in ("signed-by", *_PLAIN_OPTIONS, *_TRUSTING)},
    "arch": "architectures",
    "lang": "languages",
    "target": "targets",
}
#: Supported fields. All others are refused, as some version of apt may interpret them.
_KNOWN: Final = (
    *("types", "uris", "suites", "components", "enabled", "architectures", "languages", "targets"),
    *_PLAIN_OPTIONS,
)
#: apt-pkg/contrib/strutl.cc, `StringToBool`.
_YES: Final = frozenset({"yes", "true", "with", "on", "enable", "1"})
_NO: Final = frozenset({"no", "false", "without", "off", "disable", "0"})
#: Words without quotes, escapes and other syntax. apt replaces `$(ARCH)`, but not in the suite of a
#: line.
_PLAIN = re.compile(r"[A-Za-z0-9._~:/@+,*-]+")
_STRANGE = re.compile(r"[^\t -~]")
_FIELD = re.compile(r"[a-z][a-z0-9-]*")
_FINGERPRINT = re.compile(r"[0-9A-Fa-f]{16,64}!?")
_KEY_FILE = re.compile(
    r"/(?:usr/share/keyrings|etc/apt/keyrings|etc/apt/trusted\.gpg\.d)/[A-Za-z0-9._/+-]+"
)
#: Ignored at the beginning and end of a line.
_BLANKS: Final = " \t\r"


def fetch_packages(
    base: BaseFiles, architecture: str, names: Sequence[str], status: bytes, folder: Path
) -> tuple[set[str], list[Path]]:
    """Return the packages of `names` and their dependencies that `base` lacks, and their files.

    `status` is that of its dpkg; apt writes to `folder`. Raises UndecidedError.
    """
    configuration = _configure(base, architecture, status, folder)

    def apt(*arguments: str) -> str:
        return _run(["apt-get", *arguments], {"APT_CONFIG": str(configuration)})

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
    """Copy the base's sources, keys and state to folders that apt may write to."""
    for name in ("state/lists/partial", "cache/archives/partial", "etc"):
        (folder / name).mkdir(parents=True)
    (folder / "status").write_bytes(status)
    sources = 0
    for path, entry in sorted(base.entries.items()):
        top = next((top for top in ("etc/apt/", "usr/share/keyrings/") if path.startswith(top)), "")
        # Settings of the base may name programs, which would run on this machine.
        if entry.kind != "file" or not top or path.startswith(("etc/apt/apt.conf", "etc/apt/auth")):
            continue
        data = base.read(path) or b""
        place = folder / path
        if _SOURCES.fullmatch(path):
            data = _check_sources(path, data, folder).encode()
            # All are written in one format, which apt detects by the suffix.
            place = folder / "etc/apt/sources.list.d" / f"{sources:03d}.sources"
            sources += 1
        elif path.startswith("etc/apt/sources.list"):
            continue
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
    # Proxies and certificates are those of this machine.
    for line in _run(["apt-config", "dump"], {}).splitlines():
        if line.startswith(("Acquire::http::", "Acquire::https::")) and line.endswith(";"):
            lines.append(f"{line}\n")
    (folder / "apt.conf").write_text("".join(lines))
    return folder / "apt.conf"


def _check_sources(path: str, data: bytes, folder: Path) -> str:
    """Rewrite a list of archives, with the keys of the base in `folder`.

    apt has methods that read files and run programs of this machine, options to trust unsigned
    archives, and several spellings of each (quotes, `%74`, case, continued lines). So the rewritten
    list has only unambiguous words. Raises UndecidedError for others.
    """
    text = data.decode("latin-1")
    read = _parse_stanzas if path.endswith(".sources") else _parse_lines
    return "".join(
        f"{name}: {value}\n" if value else "\n"
        for source in read(f"/{path} of the base", text)
        for name, value in (
            *_check_source(f"/{path} of the base", source, folder).items(),
            ("", ""),
        )
    )


def _parse_lines(where: str, text: str) -> Iterator[dict[str, str]]:
    """Yield the sources of a one-line-style list, as fields."""
    for line in text.split("\n"):
        words = line.partition("#")[0]
        if not words.strip(_BLANKS):
            continue
        match = _LINE.fullmatch(words.strip(_BLANKS))
        if match is None or _STRANGE.search(match[0]):
            raise _source_error(where, line)
        kind, options, uri, suite, components = match.groups()
        fields = {"types": kind, "uris": uri, "suites": suite, "components": components.strip()}
        for option in (options or "").split():
            name, sign, value = option.partition("=")
            field = _OPTIONS.get(name, "")
            if not sign or not field or field in fields:
                raise _source_error(where, line)
            # apt reads commas as the blanks of the other format.
            fields[field] = value.replace(",", " ")
        yield fields


def _parse_stanzas(where: str, text: str) -> Iterator[dict[str, str]]:
    """Yield the sources of a list of stanzas: deb822(5), case-insensitive."""
    fields: dict[str, str] = {}
    name = ""
    for line in (*text.split("\n"), ""):
        if line.startswith("#"):
            continue
        if not line.strip(_BLANKS):
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0] in " \t" and name and not _STRANGE.search(line.strip(_BLANKS)):
            fields[name] += f"\n {line.strip(_BLANKS)}"
        else:
            name, colon, value = line.partition(":")
            name = name.lower()
            value = value.strip(_BLANKS)
            if name in fields or not colon or not _FIELD.fullmatch(name) or _STRANGE.search(value):
                raise _source_error(where, line)
            fields[name] = value


def _check_source(where: str, fields: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the checked fields of a source; empty for source packages and disabled ones."""
    if fields.get("enabled", "yes").lower() in _NO:
        return {}
    kept: dict[str, str] = {}
    for name, value in fields.items():
        words = value.split()
        if name.startswith("x-"):  # of other programs
            continue
        if name == "signed-by":
            kept[name] = _find_keys(where, value, folder)
        elif name in _TRUSTING:
            if value.lower() not in _NO:
                raise UndecidedError(f"{where} trusts an archive without a signature")
        elif name not in _KNOWN or not all(map(_PLAIN.fullmatch, words)):
            raise _source_error(where, f"{name}: {value}")
        elif words:
            kept[name] = " ".join(words)
    for address in kept.get("uris", "").split():
        if not address.startswith(("http://", "https://")):
            raise UndecidedError(f"{where} names {address[:100]!r}, and no web address")
    kinds = kept.get("types", "").split()
    is_known = bool(kinds) and {"deb", "deb-src"}.issuperset(kinds)
    if not is_known or kept.pop("enabled", "yes").lower() not in _YES:
        raise _source_error(where, " ".join(fields.values()))
    return {**kept, "types": "deb"} if "deb" in kinds else {}


def _find_keys(where: str, value: str, folder: Path) -> str:
    """Return the keys of a source: fingerprints, files of the base, or an embedded key."""
    if "-----BEGIN PGP PUBLIC KEY BLOCK-----" in value:
        return value  # Its lines continue the field, and hold what can be printed.
    keys = value.split()
    for key in keys or [""]:
        if not (_FINGERPRINT.fullmatch(key) or (_KEY_FILE.fullmatch(key) and ".." not in key)):
            raise _source_error(where, f"signed-by: {key}")
    return " ".join(f"{folder}{key}" if key.startswith("/") else key for key in keys)


def _source_error(where: str, text: str) -> UndecidedError:
    return UndecidedError(
        f"{where} has {text.strip()[:100]!r}, which is not read here: write it without quotes, `%` "
        "and rare options, or build with --engine docker"
    )


def _run(command: Sequence[str], settings: Mapping[str, str]) -> str:
    environment = {
        **bare_environment(with_network=True),
        # A file of this machine, with its proxies.
        **{name: os.environ[name] for name in ("APT_CONFIG",) if name in os.environ},
        **settings,
        "LC_ALL": "C",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    try:
        done = run(command, Path(), environment, seconds=_PATIENCE, memory=_MEMORY)
    except (OSError, subprocess.SubprocessError) as error:
        raise UndecidedError(f"{command[0]} {command[1]} cannot be run: {error}") from error
    if done.returncode:
        lines = [line[3:] for line in done.stderr.splitlines() if line.startswith("E: ")]
        why = "; ".join(lines) or done.stderr.strip()[-300:] or f"exit code {done.returncode}"
        raise UndecidedError(f"{command[0]} {command[1]} failed: {why}")
    return done.stdout


def missing_programs() -> list[str]:
    """Return the `PROGRAMS` that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name) is None]
