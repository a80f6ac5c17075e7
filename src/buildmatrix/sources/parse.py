"""Parse a SOURCE: by its prefix (`dir:`, `lock:`, ...), else by its name."""

from __future__ import annotations

from pathlib import Path

from buildmatrix.base.errors import UsageError
from buildmatrix.base.text import remember, shown
from buildmatrix.sources.declarations import (
    LockSource,
    PackageRequirement,
    ProjectFile,
    RequirementsFile,
)
from buildmatrix.sources.images import (
    DockerImage,
    ImageArchive,
    ImageLayout,
    NamedImage,
    RegistryImage,
)
from buildmatrix.sources.local import Directory, SavedReport, SingleBinary, WheelFile
from buildmatrix.sources.model import Argument, Declared, Source
from buildmatrix.sources.target import BuiltTarget

# Kinds of SOURCE


#: In the order in which they are tried: what has no prefix is the first that recognizes itself.
SOURCES: tuple[type[Source], ...] = (
    Directory,
    WheelFile,
    ImageArchive,
    ImageLayout,
    RequirementsFile,
    ProjectFile,
    LockSource,
    PackageRequirement,
    SavedReport,
    SingleBinary,
    BuiltTarget,
    DockerImage,
    RegistryImage,
    # Anything may be the name of an image.
    NamedImage,
)


#: A Python environment as `preflight` calls it.
_ALIASES = {"env": "dir"}
#: Suggestions for an empty SOURCE.
_EXPECTED = {
    "audit": "a requirements file, a lock or pypi:NAME==VERSION",
    "scan": "a folder, a wheel, a saved image or an image",
}
_EXPECTED_OTHERWISE = "an image, a folder, a wheel, a lock or a report"


def parse(argument: Argument) -> Source:
    """The SOURCE that `argument` means to its command. Raises `UsageError`."""
    text, command = argument.text, argument.command
    if not text.strip():
        raise UsageError(f"SOURCE is empty; name {_EXPECTED.get(command, _EXPECTED_OTHERWISE)}")
    remember(text)
    prefix, colon, name = text.partition(":")
    prefix = _ALIASES.get(prefix, prefix)
    for kind in SOURCES:
        if colon and prefix == kind.prefix:
            if command not in kind.commands:
                raise _refuse(kind, argument)
            if not name.strip():
                raise UsageError(f"{text} names nothing; write {prefix}: and what to read")
            return kind.named(name, argument)
    for kind in SOURCES:
        if command in kind.commands and (source := kind.recognized(argument)) is not None:
            return source
    raise _refuse_unknown(argument)


def parse_declared(text: str, root: Path) -> Declared:
    """Return the kind of SOURCE that `audit` reads a text as. Raises `UsageError`."""
    source = parse(Argument(text, "audit", root))
    assert isinstance(source, Declared)
    return source


def prefixes(command: str) -> str:
    """The prefixes that a command takes, as a sentence has them."""
    named = [kind for kind in SOURCES if command in kind.commands and kind.prefix]
    return ", ".join(f"{kind.prefix}:" for kind in named)


def _refuse(kind: type[Source], argument: Argument) -> UsageError:
    """A SOURCE that another command reads."""
    if argument.command == "audit" and kind.judged_by == "scan":
        return UsageError(
            f"{argument.text} is installed, and audit reads declared requirements; "
            f"run `buildmatrix scan {argument.text}`"
        )
    command, verb = ("audit", "audited") if argument.command == "audit" else ("scan", "scanned")
    return UsageError(
        f"{kind.prefix}: cannot be {verb}; use one of {prefixes(command)}, or run "
        f"`buildmatrix {kind.judged_by}`"
    )


def _refuse_unknown(argument: Argument) -> UsageError:
    text, path = argument.text, argument.path
    if "://" in text:
        return UsageError(f"{shown(text)} cannot be read from the network; save it as a file first")
    if path.is_dir():
        return UsageError(
            f"{text} is a folder; name the requirements file, the project file or the lock in it, "
            f"or run `buildmatrix scan {text}` for what is installed there"
        )
    if argument.command == "audit" and path.name in ("Pipfile", "setup.py", "setup.cfg"):
        hint = "Pipfile.lock" if path.name == "Pipfile" else "a requirements file or a lock"
        return UsageError(f"{text} does not say what is installed before it runs; audit {hint}")
    if not path.exists():
        hint = "; name a file, or write pypi:NAME==VERSION" if argument.command == "audit" else ""
        return UsageError(f"there is no {text}{hint}")
    return UsageError(
        f"{text} is not recognized by {argument.command}; write its kind: "
        f"{prefixes(argument.command)}"
    )
