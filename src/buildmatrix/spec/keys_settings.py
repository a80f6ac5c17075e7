"""Keys that can be said for all targets, for a backend, for a variant and in an override.

Fields that are None where the file says nothing belong to the layers defaults < backend < variant <
override; `layers` puts those together.
"""

# ruff: noqa: RUF009 (`key` makes a field, like `dataclasses.field`; ruff knows only the latter)
from __future__ import annotations

import shlex
from dataclasses import dataclass

from buildmatrix.spec import kinds
from buildmatrix.spec.containers import Either, Many, Named, Pair
from buildmatrix.spec.shape import Text
from buildmatrix.spec.tables import Row, Table, key
from buildmatrix.spec.words import Converted, Whole, Word


def _split(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text))


_NO_WORDS: tuple[str, ...] = ()
COMMAND = Either(
    Converted(kinds.COMMAND, _split, _NO_WORDS),
    str,
    Many(Converted(kinds.ARGUMENT, str, ""), at_least=1),
)
GLOBS = Many(Word(kinds.IDENTIFIER_GLOB), or_one=True, at_least=1)


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
        Named(kinds.IMAGE_LABEL, Word(kinds.VALUE, template=True)),
        "Labels of the image, beside those that buildmatrix sets.",
        default=None,
        merge="merge",
    )
    copy: tuple[tuple[Text, Text], ...] | None = key(
        Many(Pair(Word(kinds.COPIED, template=True), Word(kinds.IMAGE_PATH, template=True))),
        "What is copied into the image: pairs of a path here and a path there.",
        default=None,
        merge="add",
    )
    command: tuple[str, ...] | None = key(
        COMMAND,
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
class Override(Settings):
    """`[[override]]`: settings for some targets, in the order of the file."""

    select: tuple[Text, ...] = key(GLOBS, "Patterns for identifiers.")
    inherit: dict[str, Text] = key(
        Named(kinds.SETTING, Word(kinds.INHERIT)),
        "Lists and tables of this override that add to what is there (`append`) instead of "
        "taking its place (`replace`, the default).",
        optional=True,
    )
