"""Options of commands, declared once: the command line and the Python API are made of them.

An option is a field: its name, type, default and help, and what click needs beyond these.
`cli.options.take` makes click's options and their environment variables of the fields, and
`buildmatrix.api` the keywords of a function. Options that `commands` pass on stand here, all others
beside their function in `api`. In `--help`, the options of the first base stand before those of a
class, and those of its other bases behind them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from buildmatrix.commands.workspace import Workspace
from buildmatrix.matrix.model import RUNGS, FailOn, Rung

T = TypeVar("T")
StrPath = str | os.PathLike[str]
#: One SOURCE or several.
Sources = StrPath | Sequence[StrPath]


PLATFORM = "Platform of a multi-platform image.  [default: this machine's]"
FAIL_ON = "Lowest severity that gives exit code 1."
WAIVERS = "More [[waive]] tables, in a file."


def option(default: T, help: str, *flags: str, **more: Any) -> T:
    """A field that is an option, called as the field unless `flags` name it.

    `more` goes to click, or is `variable`, `former`, `least` and `most`. Where the default is True,
    the flag is that which makes it false.
    """
    return field(default=default, metadata={"help": help, "flags": flags, **more})


def argument(help: str, **more: Any) -> dict[str, Any]:
    """Metadata of a field that is an argument; `completes` names its completer."""
    return {"help": help, "flags": None, **more}


def list_sources(sources: Sources) -> tuple[str, ...]:
    """SOURCEs as texts."""
    several = (sources,) if isinstance(sources, str | os.PathLike) else sources
    return tuple(os.fspath(source) for source in several)


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Base of all options."""

    workspace: Workspace = field(
        default_factory=Workspace,
        metadata={"help": "this machine and the project; the current folder by default"},
    )


@dataclass(frozen=True, kw_only=True)
class SelectionOptions(CommandOptions):
    """Selection of targets of the specification."""

    select: Sequence[str] = option((), "Targets by identifier; !GLOB excludes.", metavar="GLOB")
    subset: str | None = option(None, "A subset that the specification names.", metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Conditions on which a report fails."""

    fail_on: FailOn = option("error", FAIL_ON, show_default=True)
    strict: bool = option(False, "What is undecided fails.")


@dataclass(frozen=True, kw_only=True)
class AcceptingOptions(ReportOptions):
    """The same, with findings that are accepted."""

    waivers: Path | None = option(None, WAIVERS)
    baseline: Path | None = option(
        None, "An earlier report (--format json): its findings do not fail."
    )


@dataclass(frozen=True, kw_only=True)
class JudgingOptions(AcceptingOptions):
    """The same, with the policy that judges."""

    policy: str | None = option(
        None,
        "Policy and waivers of this file, or of the specification at this git revision.",
        metavar="FILE|REF",
    )


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Choice among the images of a name."""

    platform: str | None = option(None, PLATFORM, metavar="OS/ARCH")


@dataclass(frozen=True, kw_only=True)
class ScanOptions(CommandOptions, ImageOptions, JudgingOptions):
    """Options of `scan`."""

    source: StrPath = field(
        kw_only=False,
        metadata=argument("SOURCE: `docker:IMAGE`, `dir:PATH`, ...", completes="sources"),
    )
    backend: str | None = option(
        None, "Backend to judge for; defaults to that of the image.", metavar="NAME"
    )
    select: str | None = option(
        None,
        "Judge it as this target of the specification, with its node classes and the policy.",
        metavar="TARGET",
    )
    runtime: str = option("any", "The backend's version, 12.8 for CUDA.", metavar="VERSION")


@dataclass(frozen=True, kw_only=True)
class AuditOptions(SelectionOptions, JudgingOptions):
    """Options of `audit`; without `sources`, the targets of the specification are audited."""

    sources: Sources = field(
        default=(),
        kw_only=False,
        metadata=argument(
            "requirements files, locks, `pyproject.toml`, `pypi:NAME==VERSION`, wheels",
            nargs=-1,
            metavar="[SOURCE]...",
            completes="sources",
        ),
    )
    backends: Sequence[str] = option(
        (),
        "Judge for this backend only: rocm, or with a version, cuda12.8.",
        "--backend",
        metavar="NAME",
    )
    python: str | None = option(
        None, "For this Python, 3.12, instead of the target's.", metavar="VERSION"
    )
    platform: str | None = option(None, "For this platform, linux/arm64.", metavar="NAME")
    deep: bool = option(False, "Read whole binaries: complete lists of architectures.")
    fix: bool = option(False, "Try the fixes of findings, and write those that work.")
    dry_run: bool = option(False, "With --fix: show the changes without writing them.")
    since: str | None = option(
        None, "Show only findings that are new since this git revision.", "--diff", metavar="REF"
    )
    vulnerabilities: bool = option(
        True, "Do not check for known vulnerabilities.", "--no-vulnerabilities"
    )


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(SelectionOptions):
    """Options of `diff`, whatever it compares."""

    backend: str | None = option(
        None,
        "Judge both for this backend; defaults to that of images and reports.",
        metavar="NAME",
    )
    runtime: str | None = option(None, "The backend's version, 12.8 for CUDA.", metavar="VERSION")
    python: str | None = option(
        None, "For a lock or requirements: this Python, 3.12.", metavar="VERSION"
    )
    layers: bool = option(False, "For targets, compare the layers too; exports their images.")
    deep: bool = option(False, "For locks, read whole wheels.")
    platform: str | None = option(None, PLATFORM, metavar="OS/ARCH")
    #: None: `error` where findings can be compared, and nothing where they cannot.
    fail_on: FailOn | None = option(
        None, "Lowest severity of a new finding that gives exit code 1.  [default: error]"
    )
    waivers: Path | None = option(None, WAIVERS)


@dataclass(frozen=True, kw_only=True)
class DiffOptions(ComparisonOptions):
    """Options of `diff BEFORE AFTER`."""

    before: StrPath = field(kw_only=False, metadata={"help": "SOURCE, as on the command line"})
    after: StrPath = field(kw_only=False, metadata={"help": "the other one, of the same kind"})


@dataclass(frozen=True, kw_only=True)
class DriftOptions(SelectionOptions):
    """Options of `diff --targets`."""

    source: StrPath | None = field(
        default=None,
        kw_only=False,
        metadata={
            "help": "requirements or a lock, compared between its backends; by default the "
            "targets of the specification"
        },
    )
    backend: str | None = option(None, "This backend only.")
    python: str | None = option(None, "This Python, 3.12, instead of the target's.")
    fail_on: FailOn = option("error", FAIL_ON)


@dataclass(frozen=True, kw_only=True)
class PromoteOptions(CommandOptions):
    """Options of `promote`."""

    files: Sequence[Path] = field(
        kw_only=False,
        metadata=argument(
            "reports (--format json) of all machines of a run", nargs=-1, required=True
        ),
    )
    fail_on: FailOn = option(
        "error", "Lowest severity that keeps every tag where it is.", show_default=True
    )
    strict: bool = option(False, "Treat undecided results as failures.")


# Options of `build`


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Builders, and what they are given."""

    #: None is the current one.
    builders: Sequence[str | None] = option(
        (),
        "A buildx builder, or the daemon of a Docker context; several share the targets.",
        "--builder",
        metavar="NAME",
    )
    builder_timeout: float = option(
        60.0,
        "Time without output after which a builder is pinged, and to wait for its answer.",
        least=1,
        show_default=True,
        metavar="SECONDS",
    )
    mirror: str = option(
        "",
        "Prefix of every base image; or oci:FOLDER or tar:FILE with the images (engine oci).",
        metavar="PREFIX",
    )
    network: Literal["", "default", "host", "none"] = option("", "Network of the build steps.")
    ca: Path | None = option(
        None, "Certificates that the install step trusts; a secret mount, in no layer."
    )
    netrc: Path | None = option(
        None, "Index credentials for the install step; a secret mount, in no layer."
    )


@dataclass(frozen=True, kw_only=True)
class BuildOptions(SelectionOptions, EngineOptions, JudgingOptions):
    """Options of `build`."""

    push: bool = option(False, "Publish all tags when every selected target is green.")
    save: str | None = option(
        None,
        "Write the image of a green target as an archive for `docker load`; {id} is the target's.",
        metavar="FILE",
    )
    stage: bool = option(False, "Publish images without tags, for `promote`.")
    attest: bool = option(False, "Sign the verdict of each image, and publish it with it.")
    sign_key: Path | None = option(
        None,
        "Private key for --attest (cosign.key), its password in COSIGN_PASSWORD; without one, the "
        "identity of the CI job signs.",
    )
    trust_root: Path | None = option(
        None,
        "Trust configuration of the Sigstore services for keyless signing; defaults to the "
        "public services.",
    )
    fail_fast: bool = option(False, "Stop everything at the first target that fails.")
    preflight: Rung | Literal["auto", "none"] | None = option(
        "auto",
        "Last rung of `preflight` to run with each image, in the gate smoke; auto runs import, "
        "and device if the devices are here.",
        "--level",
        former="--preflight",
        variable="BUILDMATRIX_PREFLIGHT",
        choices=("auto", "none", *RUNGS[1:]),
        show_default=True,
    )
    smoke: bool = option(True, "Skip smoke commands, and unnamed rungs.", "--no-smoke")
    #: A lock that is missing or stale fails its target.
    locked: bool = option(False, "Fail if a lock is missing or stale; never resolve.")
    audit: bool = option(True, "Judge locked wheels by their names alone.", "--no-audit")
    vulnerabilities: bool = option(
        True, "Do not check for known vulnerabilities.", "--no-vulnerabilities"
    )
    #: The builder's own cache still counts.
    rebuild: bool = option(False, "Ignore the journal and rebuild everything.")
    jobs: int = option(
        3, "Targets to build in parallel, on each builder.", least=1, show_default=True
    )
