"""The keys of `buildmatrix.toml`: each key's name, type, meaning and default, once.

The loader reads files with this table, and `schema` turns it into the JSON schema for editors.
`keys_settings` has what can be said in several places, `keys_checks` what is checked,
`keys_policy` what counts.
"""

# ruff: noqa: RUF009 (`key` makes a field, like `dataclasses.field`; ruff knows only the latter)
from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.spec import kinds
from buildmatrix.spec.keys_checks import CheckWaiverTable, NodeClassTable, SmokeTable, WaiverTable
from buildmatrix.spec.keys_policy import PolicyTable
from buildmatrix.spec.keys_settings import (
    GLOBS,
    BackendTable,
    DefaultsTable,
    OverrideTable,
    VariantTable,
    WhenTable,
)
from buildmatrix.spec.model import DEFAULT_OUTPUT, DEFAULT_TOOLS
from buildmatrix.spec.shapes import Json, SourceText, many, named, text, whole
from buildmatrix.spec.tables import Table, group, key, maybe, row


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectTable(Table):
    """`[project]`."""

    name: SourceText = key(text(kinds.PROJECT), "Name of the project; `{project}` elsewhere.")
    version: SourceText = key(text(kinds.VERSION), "Version of the project; `{version}` elsewhere.")
    image: SourceText | None = maybe(
        text(kinds.REPOSITORY, template=True),
        "Name of the images without a tag.",
        default="{project}",
    )
    source: SourceText | None = maybe(
        text(kinds.SOURCE),
        "Where the sources are; becomes the label org.opencontainers.image.source.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludeTable(Table):
    """`[[include]]`: one more point of the matrix."""

    backend: SourceText = key(text(kinds.BACKEND), "The backend.")
    runtime: SourceText | None = maybe(
        text(kinds.RUNTIME), "The runtime.", otherwise="the only one"
    )
    python: SourceText = key(text(kinds.PYTHON), "The Python version; need not be in the axis.")
    variant: SourceText | None = maybe(
        text(kinds.VARIANT), "The variant.", otherwise="the only one"
    )
    platform: SourceText | None = maybe(
        text(kinds.PLATFORM), "The platform.", otherwise="the only one"
    )
    reason: SourceText = key(text(kinds.TEXT), "Why it is there.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludeTable(Table):
    """`[[exclude]]`: points that are taken out. With both keys, both must match."""

    select: tuple[SourceText, ...] = group(GLOBS, "Patterns for identifiers.")
    when: WhenTable | None = maybe(
        row(WhenTable, '{ backend = "oneapi", python = ">=3.13" }'), "Conditions on the axes."
    )
    reason: SourceText = key(
        text(kinds.TEXT), "Why they are taken out; `buildmatrix targets` shows it."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetTable(Table):
    """`[subset.NAME]`: some of the targets, for `--subset NAME`."""

    select: tuple[SourceText, ...] = group(GLOBS, "Patterns for identifiers.", otherwise="all")
    latest: SourceText | None = maybe(
        text(kinds.LATEST),
        "`runtime`: of what is selected, only the latest runtime of each backend.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TagsTable(Table):
    """`[tags]`."""

    templates: tuple[SourceText, ...] | None = maybe(
        many(text(kinds.TAG, template=True), at_least=1),
        "Tags of every target.",
        default=["{version}-{id}"],
    )
    alias: dict[str, SourceText] = group(
        named(kinds.TAG_TEMPLATE, text(kinds.IDENTIFIER_GLOB)),
        "Further tags: each names the one target that gets it.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsTable(Table):
    """`[tools]`: images of helper stages."""

    uv: SourceText | None = maybe(
        text(kinds.IMAGE), "Image that holds the `uv` binary.", default=DEFAULT_TOOLS["uv"]
    )
    scanner: SourceText | None = maybe(
        text(kinds.IMAGE),
        "Image with a Python 3 that reads the finished root file system.",
        default=DEFAULT_TOOLS["scanner"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueTable(Table):
    """`[catalogue]`."""

    files: tuple[SourceText, ...] = group(
        many(text(kinds.PATH)),
        "Data files of your own, in the order of reading: what belongs to which backend.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateTable(Table):
    """`[generate]`."""

    output: SourceText | None = maybe(
        text(kinds.PATH), "Folder for generated files.", default=DEFAULT_OUTPUT
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile(Table):
    """The whole file."""

    schema: int | None = maybe(whole(1, 1, "1"), "Version of this format.", default=1)
    project: ProjectTable = key(row(ProjectTable), "What is built.")
    defaults: DefaultsTable = group(row(DefaultsTable), "Settings and axes of all targets.")
    backend: dict[str, BackendTable] = key(
        named(kinds.BACKEND, row(BackendTable)),
        "One table per backend: its runtimes, and its own settings and axes.",
    )
    variant: dict[str, VariantTable] = group(
        named(kinds.VARIANT, row(VariantTable)), "One table per variant with settings."
    )
    include: tuple[IncludeTable, ...] = group(
        many(row(IncludeTable)), "Points that the axes do not give."
    )
    exclude: tuple[ExcludeTable, ...] = group(
        many(row(ExcludeTable)), "Points that are taken out, with the reason."
    )
    override: tuple[OverrideTable, ...] = group(
        many(row(OverrideTable)), "Settings for some targets, in the order of the file."
    )
    subset: dict[str, SubsetTable] = group(
        named(kinds.SUBSET, row(SubsetTable)), "Named selections for `--subset`."
    )
    tags: TagsTable = group(row(TagsTable), "Tags of the images.")
    smoke: tuple[SmokeTable, ...] = group(
        many(row(SmokeTable)), "Commands that must succeed inside the images."
    )
    node_class: dict[str, NodeClassTable] = group(
        named(kinds.NODE_CLASS, row(NodeClassTable)), "Machines that targets run on."
    )
    policy: PolicyTable = group(row(PolicyTable), "Thresholds and allowances.")
    waive: tuple[WaiverTable, ...] = group(
        many(row(WaiverTable)), "Findings that are accepted, until a day."
    )
    waive_check: tuple[CheckWaiverTable, ...] = group(
        many(row(CheckWaiverTable)), "Checks of `preflight` that may fail, until a day."
    )
    catalogue: CatalogueTable = group(
        row(CatalogueTable), "What is known beside buildmatrix's own catalogue."
    )
    tools: ToolsTable = group(row(ToolsTable), "Images of helper stages.")
    generate: GenerateTable = group(row(GenerateTable), "Where generated files go.")


def schema() -> Json:
    """JSON schema of the file for editors, draft 7: what SchemaStore asks for, and taplo completes.

    A file that it refuses is refused by the loader too; the loader also checks what a schema cannot
    say.
    """
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://json.schemastore.org/buildmatrix.json",
        "title": "buildmatrix.toml",
        "description": "The matrix of images that buildmatrix builds and checks.",
        **row(SpecFile).schema(),
    }
