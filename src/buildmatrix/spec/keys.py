"""The keys of `buildmatrix.toml`: each key's name, type, meaning and default, once.

The loader reads files with this table, and `schema` turns it into the JSON schema for editors.
`keys_settings` has what can be said in several places, `keys_checks` what is checked.
"""

# ruff: noqa: RUF009 (`key` makes a field, like `dataclasses.field`; ruff knows only the latter)
from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.spec import kinds
from buildmatrix.spec.containers import Many, Named
from buildmatrix.spec.keys_checks import NodeClassTable, PolicyTable, SmokeTable, Waive
from buildmatrix.spec.keys_settings import (
    GLOBS,
    Backend,
    Defaults,
    Override,
    Settings,
    WhenTable,
)
from buildmatrix.spec.model import DEFAULT_OUTPUT
from buildmatrix.spec.shape import Text
from buildmatrix.spec.tables import Row, Table, key
from buildmatrix.spec.words import Whole, Word


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
    reason: Text = key(Word(kinds.TEXT), "Why it is there.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclude(Table):
    """`[[exclude]]`: points that are taken out. With both keys, both must match."""

    select: tuple[Text, ...] = key(GLOBS, "Patterns for identifiers.", optional=True)
    when: WhenTable | None = key(
        Row(WhenTable, '{ backend = "oneapi", python = ">=3.13" }'),
        "Conditions on the axes.",
        default=None,
    )
    reason: Text = key(Word(kinds.TEXT), "Why they are taken out; `buildmatrix targets` shows it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset(Table):
    """`[subset.NAME]`: some of the targets, for `--subset NAME`."""

    select: tuple[Text, ...] = key(GLOBS, "Patterns for identifiers. Default: all.", optional=True)
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
        f"Folder for generated files. Default: `{DEFAULT_OUTPUT}`.",
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
