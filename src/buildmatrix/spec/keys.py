"""The table of all keys of `buildmatrix.toml`: each key's name, type, meaning and default, once.

The loader reads files with it, and `schema` turns it into the JSON schema for editors. Fields that
are None where the file says nothing belong to the layers defaults < backend < variant <
override; `layers` puts those together.
"""

# ruff: noqa: RUF009 (`key` makes a field, like `dataclasses.field`; ruff knows only the latter)
from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import date

from buildmatrix.spec import kinds
from buildmatrix.spec.shape import (
    Converted,
    Day,
    Either,
    Many,
    Named,
    Pair,
    Row,
    Table,
    Text,
    Whole,
    Word,
    key,
)

_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _bytes(text: str) -> int:
    """`3GB`, `1.5 GiB` as bytes."""
    number, unit = _number_and_unit(text)
    units = _BINARY_UNITS if unit.endswith("iB") else _UNITS
    return round(number * units[unit.removesuffix("iB").removesuffix("B")])


def _seconds(text: str) -> float:
    """`180s`, `1.5h` as seconds."""
    number, unit = _number_and_unit(text)
    return number * _SECONDS[unit]


def _number_and_unit(text: str) -> tuple[float, str]:
    unit = text.lstrip("0123456789. ")
    return float(text.removesuffix(unit)), unit


def _split(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text))


_NO_WORDS: tuple[str, ...] = ()
_SIZE = Converted(kinds.SIZE, _bytes, 0)
_DURATION = Converted(kinds.DURATION, _seconds, 0.0)
_COMMAND = Either(
    Converted(kinds.COMMAND, _split, _NO_WORDS),
    str,
    Many(Converted(kinds.VALUE, str, ""), at_least=1),
)
_GLOBS = Many(Word(kinds.IDENTIFIER_GLOB), or_one=True, at_least=1)
_TEXT = Word(kinds.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Table):
    """`[project]`."""

    name: Text = key(Word(kinds.PROJECT), "Name of the project; `{project}` elsewhere.")
    version: Text = key(Word(kinds.VERSION), "Version of the project; `{version}` elsewhere.")
    image: Text | None = key(
        Word(kinds.REPOSITORY, template=True),
        "Name of the images without a tag. Default: the project's name.",
        default=None,
    )
    source: Text | None = key(
        Word(kinds.SOURCE),
        "Where the sources are; becomes the label org.opencontainers.image.source.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenTable(Table):
    """`when = { ... }`: every key that is there must match."""

    backend: tuple[Text, ...] = key(
        Many(Word(kinds.BACKEND), or_one=True), "Backends, any of them.", optional=True
    )
    runtime: tuple[Text, ...] = key(
        Many(Word(kinds.CONDITION), or_one=True),
        "Runtimes, or ranges such as `>=12.8`; any of them.",
        optional=True,
    )
    python: tuple[Text, ...] = key(
        Many(Word(kinds.CONDITION), or_one=True),
        "Python versions, or ranges such as `>=3.13`; any of them.",
        optional=True,
    )
    variant: tuple[Text, ...] = key(
        Many(Word(kinds.VARIANT), or_one=True), "Variants, any of them.", optional=True
    )
    platform: tuple[Text, ...] = key(
        Many(Word(kinds.PLATFORM), or_one=True), "Platforms, any of them.", optional=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseTable(Table):
    """One choice of base images."""

    when: WhenTable | None = key(
        Row(WhenTable, '{ python = ">=3.12" }'),
        "Which targets this choice is for. Default: all.",
        default=None,
    )
    build: Text | None = key(
        Word(kinds.IMAGE, template=True),
        "Image of the build stage. Default: that of the final stage.",
        default=None,
    )
    final: Text = key(Word(kinds.IMAGE, template=True), "Image of the final stage.")


_BASE_EXAMPLE = '{ build = "ubuntu:22.04", final = "debian:12-slim" }'


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTable(Table):
    """`user = { ... }`."""

    name: Text | None = key(Word(kinds.USER), "Name of the user. Default: `app`.", default=None)
    uid: int = key(
        Whole(1, 2**31 - 1, "10001"),
        "Number of the user; 0 (root) is not allowed.",
        default=10001,
    )
    groups: tuple[Text, ...] = key(
        Many(Word(kinds.GROUP)), "Further groups, such as `video` for /dev/dri.", optional=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Table):
    """What can be said for all targets, for a backend, for a variant, and in an override."""

    base: Text | BaseTable | tuple[BaseTable, ...] | None = key(
        Either(
            Word(kinds.IMAGE, template=True),
            str,
            Either(Row(BaseTable, _BASE_EXAMPLE), dict, Many(Row(BaseTable, _BASE_EXAMPLE))),
        ),
        "Base images: one reference, a table with `build` and `final`, or a list of such tables "
        "with `when`, of which the first that matches is taken.",
        default=None,
    )
    requirements: tuple[Text, ...] | None = key(
        Many(Word(kinds.PATH, template=True)),
        "Requirements files, in the order of reading.",
        default=None,
        merge="add",
    )
    pyproject: Text | None = key(
        Word(kinds.PATH, template=True),
        "A pyproject.toml whose dependencies are installed.",
        default=None,
    )
    extras: tuple[Text, ...] | None = key(
        Many(Word(kinds.EXTRA, template=True)),
        "Extras of `pyproject` that are installed too.",
        default=None,
        merge="add",
    )
    replace: dict[str, Text] | None = key(
        Named(kinds.DISTRIBUTION, Word(kinds.DISTRIBUTION, template=True)),
        "Distributions that another one stands in for, swapped before resolving.",
        default=None,
        merge="merge",
    )
    drop: tuple[Text, ...] | None = key(
        Many(Word(kinds.DISTRIBUTION)),
        "Distributions that are taken out of the resolution.",
        default=None,
        merge="add",
    )
    no_binary: tuple[Text, ...] | None = key(
        Many(Word(kinds.DISTRIBUTION)),
        "Distributions that are built from source.",
        default=None,
        merge="add",
    )
    torch: Text | None = key(
        Word(kinds.TORCH, template=True),
        "uv's name of the torch build (`cpu`, `cu128`, `rocm6.4`, `xpu`): binds the torch family "
        "to the index of that build.",
        default=None,
    )
    index: dict[str, Text] | None = key(
        Named(kinds.FAMILY, Word(kinds.INDEX, template=True)),
        "Package family to the one index that it comes from. `torch` stands for the torch family "
        "and wins over the key `torch`.",
        default=None,
        merge="merge",
    )
    archs: tuple[Text, ...] | None = key(
        Many(Word(kinds.ARCH)),
        "GPU architectures that the image must have device code for.",
        default=None,
    )
    system_packages: tuple[Text, ...] | None = key(
        Many(Word(kinds.SYSTEM_PACKAGE, template=True)),
        "Debian packages that are installed in the final stage, with `=version` where it matters.",
        default=None,
        merge="add",
    )
    env: dict[str, Text] | None = key(
        Named(kinds.VARIABLE, Word(kinds.VALUE, template=True)),
        "Environment variables of the image.",
        default=None,
        merge="merge",
    )
    labels: dict[str, Text] | None = key(
        Named(kinds.LABEL, Word(kinds.VALUE, template=True)),
        "Labels of the image, beside those that buildmatrix sets.",
        default=None,
        merge="merge",
    )
    copy: tuple[tuple[Text, Text], ...] | None = key(
        Many(Pair(Word(kinds.PATH, template=True), Word(kinds.IMAGE_PATH, template=True))),
        "What is copied into the image: pairs of a path here and a path there.",
        default=None,
        merge="add",
    )
    command: tuple[str, ...] | None = key(
        _COMMAND,
        "What the image runs. A list is taken as it is; a string is split into words, without a "
        "shell.",
        default=None,
    )
    user: UserTable | None = key(
        Row(UserTable, '{ name = "app", uid = 10001, groups = ["video"] }'),
        "Who runs inside the image.",
        default=None,
    )
    template: Text | None = key(
        Word(kinds.PATH, template=True),
        "Template of the Dockerfile: a built-in name, or the path of a file. "
        "Default: `{backend}.Dockerfile.j2`.",
        default=None,
    )
    lock: Text | None = key(
        Word(kinds.LOCK_PATH, template=True),
        "Path of a target's lock. Default: `locks/pylock.{id}.toml`.",
        default=None,
    )
    runner: Text | None = key(
        Word(kinds.RUNNER, template=True),
        "Label of the CI runner; only copied into the matrix of `targets --format github`.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults(Settings):
    """`[defaults]`: settings and axes."""

    python: tuple[Text, ...] | None = key(
        Many(Word(kinds.PYTHON), or_one=True, at_least=1), "Python versions: an axis.", default=None
    )
    variant: tuple[Text, ...] | None = key(
        Many(Word(kinds.VARIANT), or_one=True, at_least=1),
        "Variants: an axis. Default: one that is called `default`.",
        default=None,
    )
    platforms: tuple[Text, ...] | None = key(
        Many(Word(kinds.PLATFORM), or_one=True, at_least=1),
        "Platforms: an axis. Default: `linux/amd64`.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend(Defaults):
    """`[backend.NAME]`: settings and axes of one backend; its axes replace the defaults'."""

    runtime: Text | dict[str, dict[str, Text]] = key(
        Either(
            Word(kinds.RUNTIME),
            str,
            Named(kinds.RUNTIME, Named(kinds.RUNTIME_KEY, Word(kinds.RUNTIME_VALUE))),
        ),
        "Version lines of the backend, each with values that `{runtime.KEY}` stands for. One that "
        'needs no values may stand as a string; "any" says that the backend has no version lines.',
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Include(Table):
    """`[[include]]`: one more point of the matrix."""

    backend: Text = key(Word(kinds.BACKEND), "The backend.")
    runtime: Text | None = key(
        Word(kinds.RUNTIME), "The runtime; may be left out where there is one.", default=None
    )
    python: Text = key(Word(kinds.PYTHON), "The Python version; need not be in the axis.")
    variant: Text | None = key(
        Word(kinds.VARIANT), "The variant; may be left out where there is one.", default=None
    )
    platform: Text | None = key(
        Word(kinds.PLATFORM), "The platform; may be left out where there is one.", default=None
    )
    reason: Text = key(_TEXT, "Why it is there.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclude(Table):
    """`[[exclude]]`: points that are taken out. With both keys, both must match."""

    select: tuple[Text, ...] = key(_GLOBS, "Patterns for identifiers.", optional=True)
    when: WhenTable | None = key(
        Row(WhenTable, '{ backend = "oneapi", python = ">=3.13" }'),
        "Conditions on the axes.",
        default=None,
    )
    reason: Text = key(_TEXT, "Why they are taken out; `buildmatrix targets` shows it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override(Settings):
    """`[[override]]`: settings for some targets, in the order of the file."""

    select: tuple[Text, ...] = key(_GLOBS, "Patterns for identifiers.")
    inherit: dict[str, Text] = key(
        Named(kinds.SETTING, Word(kinds.INHERIT)),
        "Lists and tables of this override that add to what is there (`append`) instead of "
        "taking its place (`replace`, the default).",
        optional=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset(Table):
    """`[subset.NAME]`: some of the targets, for `--subset NAME`."""

    select: tuple[Text, ...] = key(_GLOBS, "Patterns for identifiers. Default: all.", optional=True)
    latest: Text | None = key(
        Word(kinds.LATEST),
        "`runtime`: of what is selected, only the latest runtime of each backend.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags(Table):
    """`[tags]`."""

    templates: tuple[Text, ...] | None = key(
        Many(Word(kinds.TAG, template=True), at_least=1),
        "Tags of every target. Default: `{version}-{id}`.",
        default=None,
    )
    alias: dict[str, Text] = key(
        Named(kinds.TAG_TEMPLATE, Word(kinds.IDENTIFIER_GLOB)),
        "Further tags: each names the one target that gets it.",
        optional=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeTable(Table):
    """`[[smoke]]`: a command that must succeed inside the image."""

    name: Text = key(Word(kinds.SMOKE), "Name of the check, in reports.")
    level: Text = key(
        Word(kinds.LEVEL),
        "`import` needs no device, `device` needs one, `batch` does real work on it.",
    )
    select: tuple[Text, ...] = key(_GLOBS, "Patterns for identifiers. Default: all.", optional=True)
    command: tuple[str, ...] = key(_COMMAND, "The command; a string is split without a shell.")
    timeout: float = key(
        _DURATION, "Time after which it has failed. Default: `120s`.", default=120.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassTable(Table):
    """`[node-class.NAME]`: a kind of machine that targets run on."""

    backend: Text = key(Word(kinds.BACKEND), "The backend of its devices.")
    driver: Text = key(Word(kinds.RANGE), "Range of the driver versions on these machines.")
    archs: tuple[Text, ...] = key(Many(Word(kinds.ARCH)), "GPU architectures.", optional=True)
    labels: dict[str, Text] = key(
        Named(kinds.LABEL, Word(kinds.VALUE)), "Kubernetes labels of the nodes.", optional=True
    )
    runs: tuple[Text, ...] = key(_GLOBS, "Patterns for the targets that run there.", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreTable(Table):
    """One entry of `ignore` in `[policy.vulnerabilities]`."""

    id: Text = key(Word(kinds.ADVISORY), "Any of its names: CVE, GHSA or PYSEC.")
    reason: Text = key(_TEXT, "Why it does not matter here.")
    expires: date = key(Day(), "The last day on which that holds.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VulnerabilitiesTable(Table):
    """`[policy.vulnerabilities]`."""

    service: Text | None = key(
        Word(kinds.SERVICE), "Who is asked: `pypi` (the default) or `osv`.", default=None
    )
    url: Text | None = key(
        Word(kinds.SOURCE),
        "An OSV service of your own, `https://osv.example.com/v1/query`; with `osv` only.",
        default=None,
    )
    severity: Text | None = key(
        Word(kinds.SEVERITY),
        "Severity of a known vulnerability. Default: `error`.",
        default=None,
    )
    ignore: tuple[IgnoreTable, ...] = key(
        Many(Row(IgnoreTable, '{ id = "CVE-2024-22195", reason = "...", expires = 2027-01-31 }')),
        "Advisories that are accepted, until a day.",
        optional=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable(Table):
    """`[policy]`. Keys of its tables are backends, or `*` for all."""

    allow_unresolved: dict[str, tuple[Text, ...]] = key(
        Named(kinds.BACKEND, Many(Word(kinds.SONAME_GLOB)), wildcard=True),
        "Sonames (or patterns) that need not be in the image: the host's driver brings them.",
        optional=True,
    )
    forbid_env: dict[str, tuple[Text, ...]] = key(
        Named(kinds.BACKEND, Many(Word(kinds.VARIABLE_GLOB)), wildcard=True),
        "Patterns of environment variables that an image must not set.",
        optional=True,
    )
    max_size: dict[str, int] = key(
        Named(kinds.BACKEND, _SIZE, wildcard=True),
        "Largest allowed size of the root file system: `3GB` (powers of ten) or `3GiB`.",
        optional=True,
    )
    bloat_threshold: int = key(
        _SIZE,
        "Foreign bytes up to which a distribution is not called bloat. Default: `5MB`.",
        default=5_000_000,
    )
    vulnerabilities: VulnerabilitiesTable = key(
        Row(VulnerabilitiesTable),
        "Who is asked for advisories, and which do not count.",
        optional=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waive(Table):
    """`[[waive]]`: a finding that somebody accepted."""

    rule: Text = key(Word(kinds.RULE), "Code of the rule.")
    select: tuple[Text, ...] = key(_GLOBS, "Patterns for identifiers. Default: all.", optional=True)
    distribution: Text | None = key(
        Word(kinds.DISTRIBUTION_GLOB), "Pattern for distribution names.", default=None
    )
    path: Text | None = key(Word(kinds.FILE_GLOB), "Pattern for paths.", default=None)
    reason: Text = key(_TEXT, "Why the finding is acceptable.")
    owner: Text = key(Word(kinds.OWNER), "Who answers for it.")
    expires: date = key(Day(), "The last day on which it holds.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools(Table):
    """`[tools]`: images of helper stages."""

    uv: Text | None = key(
        Word(kinds.IMAGE),
        "Image that holds the `uv` binary.",
        default=None,
    )
    scanner: Text | None = key(
        Word(kinds.IMAGE),
        "Image with a Python 3 that reads the finished root file system.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueTable(Table):
    """`[catalogue]`."""

    files: tuple[Text, ...] = key(
        Many(Word(kinds.PATH)),
        "Data files of your own, in the order of reading: what belongs to which backend.",
        optional=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate(Table):
    """`[generate]`."""

    output: Text | None = key(
        Word(kinds.PATH),
        "Folder for generated files. Default: `.buildmatrix/generated`.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class File(Table):
    """The whole file."""

    schema: int = key(Whole(1, 1, "1"), "Version of this format.", default=1)
    project: Project = key(Row(Project), "What is built.")
    defaults: Defaults = key(Row(Defaults), "Settings and axes of all targets.", optional=True)
    backend: dict[str, Backend] = key(
        Named(kinds.BACKEND, Row(Backend)),
        "One table per backend: its runtimes, and its own settings and axes.",
    )
    variant: dict[str, Settings] = key(
        Named(kinds.VARIANT, Row(Settings)), "One table per variant with settings.", optional=True
    )
    include: tuple[Include, ...] = key(
        Many(Row(Include)), "Points that the axes do not give.", optional=True
    )
    exclude: tuple[Exclude, ...] = key(
        Many(Row(Exclude)), "Points that are taken out, with the reason.", optional=True
    )
    override: tuple[Override, ...] = key(
        Many(Row(Override)), "Settings for some targets, in the order of the file.", optional=True
    )
    subset: dict[str, Subset] = key(
        Named(kinds.SUBSET, Row(Subset)), "Named selections for `--subset`.", optional=True
    )
    tags: Tags = key(Row(Tags), "Tags of the images.", optional=True)
    smoke: tuple[SmokeTable, ...] = key(
        Many(Row(SmokeTable)), "Commands that must succeed inside the images.", optional=True
    )
    node_class: dict[str, NodeClassTable] = key(
        Named(kinds.NODE_CLASS, Row(NodeClassTable)), "Machines that targets run on.", optional=True
    )
    policy: PolicyTable = key(Row(PolicyTable), "Thresholds and allowances.", optional=True)
    waive: tuple[Waive, ...] = key(
        Many(Row(Waive)), "Findings that are accepted, until a day.", optional=True
    )
    catalogue: CatalogueTable = key(
        Row(CatalogueTable), "What is known beside buildmatrix's own catalogue.", optional=True
    )
    tools: Tools = key(Row(Tools), "Images of helper stages.", optional=True)
    generate: Generate = key(Row(Generate), "Where generated files go.", optional=True)
