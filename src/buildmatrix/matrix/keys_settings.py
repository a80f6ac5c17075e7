"""Keys allowed for all targets, for a backend, for a variant and in an override.

Fields that the file does not set are None and belong to the layers defaults < backend < variant <
override; `settings` combines those.
"""

from __future__ import annotations

from typing import ClassVar

from buildmatrix.matrix import kinds
from buildmatrix.matrix.shapes import (
    SourceText,
    Table,
    either,
    flag,
    group,
    key,
    many,
    maybe,
    named,
    pair,
    row,
    text,
    whole,
)

#: A string that is split into words, or the words.
Command = SourceText | tuple[SourceText, ...]
COMMAND = either(text(kinds.COMMAND), str, many(text(kinds.ARGUMENT), at_least=1))
GLOBS = many(text(kinds.IDENTIFIER_GLOB), single=True, at_least=1)


class WhenTable(Table):
    """`when = { ... }`: every key that is there must match."""

    backend: tuple[SourceText, ...] = group(
        many(text(kinds.BACKEND), single=True), "Backends, any of them."
    )
    runtime: tuple[SourceText, ...] = group(
        many(text(kinds.CONDITION), single=True),
        "Runtimes, or ranges such as `>=12.8`; any of them.",
    )
    python: tuple[SourceText, ...] = group(
        many(text(kinds.CONDITION), single=True),
        "Python versions, or ranges such as `>=3.13`; any of them.",
    )
    variant: tuple[SourceText, ...] = group(
        many(text(kinds.VARIANT), single=True), "Variants, any of them."
    )
    platform: tuple[SourceText, ...] = group(
        many(text(kinds.PLATFORM), single=True), "Platforms, any of them."
    )


class BaseTable(Table):
    """One choice of base images."""

    when: WhenTable | None = maybe(
        row(WhenTable, '{ python = ">=3.12" }'),
        "Which targets this choice is for.",
        otherwise="all",
    )
    build: SourceText | None = maybe(
        text(kinds.IMAGE, template=True),
        "Image of the build stage.",
        otherwise="that of the final stage",
    )
    final: SourceText = key(text(kinds.IMAGE, template=True), "Image of the final stage.")


_BASE_EXAMPLE = '{ build = "ubuntu:22.04", final = "debian:12-slim" }'


class UserTable(Table):
    """`user = { ... }`."""

    name: SourceText | None = maybe(text(kinds.USER), "Name of the user.", default="app")
    uid: int | None = maybe(
        whole(1, 2**31 - 1, "10001"), "Number of the user; 0 (root) is not allowed.", default=10001
    )
    groups: tuple[SourceText, ...] = group(
        many(text(kinds.GROUP)), "Further groups, such as `video` for /dev/dri."
    )


class TargetSettings(Table):
    """Settings for all targets, for a backend, for a variant, and in an override."""

    base: SourceText | BaseTable | tuple[BaseTable, ...] | None = maybe(
        either(
            text(kinds.IMAGE, template=True),
            str,
            either(row(BaseTable, _BASE_EXAMPLE), dict, many(row(BaseTable, _BASE_EXAMPLE))),
        ),
        "Base images: one reference, a table with `build` and `final`, or a list of such tables "
        "with `when`, of which the first that matches is taken.",
    )
    requirements: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.PATH, template=True)),
        "Requirements files, in the order of reading.",
        merge="add",
    )
    pyproject: SourceText | None = maybe(
        text(kinds.PATH, template=True), "A pyproject.toml whose dependencies are installed."
    )
    install_project: bool | None = maybe(
        flag(),
        "Whether the project of `pyproject` is installed itself, with its scripts: as a wheel that "
        "its own build backend makes here.",
        default=False,
    )
    extras: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.EXTRA, template=True)),
        "Extras of `pyproject`, or of the project's own `lock`, that are installed too.",
        merge="add",
    )
    groups: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.DEPENDENCY_GROUP, template=True)),
        "Dependency groups of the project's own `lock` that are installed too.",
        merge="add",
    )
    only_groups: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.DEPENDENCY_GROUP, template=True)),
        "Dependency groups of the project's own `lock` that are installed, and nothing else.",
        merge="add",
    )
    environment: SourceText | None = maybe(
        text(kinds.ENVIRONMENT, template=True),
        "Environment of the project's own `pixi.lock` that is installed.",
    )
    replace: dict[str, SourceText] | None = maybe(
        named(kinds.DISTRIBUTION, text(kinds.DISTRIBUTION, template=True)),
        "Distributions to replace with another one before resolving.",
        merge="merge",
    )
    drop: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.DISTRIBUTION)),
        "Distributions that are taken out of the resolution.",
        merge="add",
    )
    no_binary: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.DISTRIBUTION)), "Distributions that are built from source.", merge="add"
    )
    torch: SourceText | None = maybe(
        text(kinds.TORCH, template=True),
        "uv's name of the torch build (`cpu`, `cu128`, `rocm6.4`, `xpu`): binds the torch family "
        "to the index of that build.",
    )
    index: dict[str, SourceText] | None = maybe(
        named(kinds.FAMILY, text(kinds.INDEX, template=True)),
        "Package family to the one index that it comes from. `torch` stands for the torch family "
        "and wins over the key `torch`.",
        merge="merge",
    )
    archs: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.ARCH)), "GPU architectures that the image must have device code for."
    )
    system_packages: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.SYSTEM_PACKAGE, template=True)),
        "Packages of the base image's distribution that are installed in the final stage, with "
        "`=version` (dnf: `-version`) where it matters.",
        merge="add",
    )
    package_manager: SourceText | None = maybe(
        text(kinds.PACKAGE_MANAGER),
        "What installs system packages, and Python where the base lacks it; `dnf` is microdnf "
        "where the base has only that.",
        otherwise="that of the distribution in the base image's name, or `apt` if there is none",
    )
    env: dict[str, SourceText] | None = maybe(
        named(kinds.VARIABLE, text(kinds.VALUE, template=True)),
        "Environment variables of the image.",
        merge="merge",
    )
    labels: dict[str, SourceText] | None = maybe(
        named(kinds.IMAGE_LABEL, text(kinds.VALUE, template=True)),
        "Labels of the image, beside those that buildmatrix sets.",
        merge="merge",
    )
    copy: tuple[tuple[SourceText, SourceText], ...] | None = maybe(
        many(pair(text(kinds.COPIED, template=True), text(kinds.IMAGE_PATH, template=True))),
        "What is copied into the image: pairs of a path here and a path there.",
        merge="add",
    )
    command: Command | None = maybe(
        COMMAND,
        "What the image runs. A list is taken as it is; a string is split into words, without a "
        "shell.",
    )
    user: UserTable | None = maybe(
        row(UserTable, '{ name = "app", uid = 10001, groups = ["video"] }'),
        "Who runs inside the image.",
    )
    template: SourceText | None = maybe(
        text(kinds.PATH, template=True),
        "Template of the Dockerfile: a built-in name, or the path of a file.",
        otherwise="`{backend}.Dockerfile.j2`, or the generic one where there is none",
    )
    lock: SourceText | None = maybe(
        text(kinds.LOCK_PATH, template=True),
        "Path of a target's lock. A lock that the project has (`uv.lock`, `poetry.lock`, "
        "`Pipfile.lock`, pinned requirements with hashes, a pylock of another tool) is installed "
        "as it is; `buildmatrix lock` writes any other one.",
        default="locks/pylock.{id}.toml",
    )
    runner: SourceText | None = maybe(
        text(kinds.RUNNER, template=True),
        "Label of the CI runner; only copied into the matrix of `targets --format github`.",
    )


class DefaultsTable(TargetSettings):
    """`[defaults]`: settings and axes."""

    python: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.PYTHON), single=True, at_least=1), "Python versions: an axis."
    )
    variant: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.VARIANT), single=True, at_least=1),
        "Variants: an axis.",
        default=["default"],
    )
    platforms: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.PLATFORM), single=True, at_least=1),
        "Platforms: an axis.",
        default=["linux/amd64"],
    )


class BackendTable(DefaultsTable):
    """`[backend.NAME]`: settings and axes of one backend; its axes replace the defaults'."""

    inherited: ClassVar[str] = "what `[defaults]` says"

    runtime: SourceText | tuple[SourceText, ...] | dict[str, dict[str, SourceText]] = key(
        either(
            text(kinds.RUNTIME),
            str,
            either(
                many(text(kinds.RUNTIME), at_least=1),
                list,
                named(kinds.RUNTIME, named(kinds.RUNTIME_KEY, text(kinds.RUNTIME_VALUE))),
            ),
        ),
        "Version lines of the backend, each with values that `{runtime.KEY}` stands for. One that "
        "needs no values may stand as a string, several of them as a list; "
        '"any" says that the backend has no version lines.',
    )


class VariantTable(TargetSettings):
    """`[variant.NAME]`: settings of one variant."""

    inherited: ClassVar[str] = "what the backend says"


class OverrideTable(TargetSettings):
    """`[[override]]`: settings for some targets, in the order of the file."""

    inherited: ClassVar[str] = "what these targets have without this table"

    select: tuple[SourceText, ...] = key(GLOBS, "Patterns for identifiers.")
    inherit: dict[str, SourceText] = group(
        named(kinds.SETTING, text(kinds.INHERIT)),
        "Lists and tables of this override that add to what is there (`append`) instead of "
        "taking its place (`replace`, the default).",
    )
