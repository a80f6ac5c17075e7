"""The keys of `buildmatrix.toml`: each key's name, type, meaning and default, once.

The loader reads files with this table, and `schema` turns it into the JSON schema for editors.
`keys_settings` has the keys that are allowed in several places.
"""

from __future__ import annotations

from datetime import date

from buildmatrix.matrix import kinds
from buildmatrix.matrix.keys_settings import (
    COMMAND,
    GLOBS,
    BackendTable,
    Command,
    DefaultsTable,
    OverrideTable,
    VariantTable,
    WhenTable,
)
from buildmatrix.matrix.model import DEFAULT_OUTPUT, DEFAULT_TOOLS
from buildmatrix.matrix.shapes import (
    Json,
    SourceText,
    Table,
    day,
    either,
    group,
    key,
    many,
    maybe,
    named,
    row,
    text,
    whole,
)


class IgnoreTable(Table):
    """One entry of `ignore` in `[policy.vulnerabilities]`."""

    id: SourceText = key(text(kinds.ADVISORY), "Any of its names: CVE, GHSA or PYSEC.")
    reason: SourceText = key(text(kinds.TEXT), "Why it does not matter here.")
    expires: date = key(day(), "The last day on which that holds.")


class VulnerabilitiesTable(Table):
    """`[policy.vulnerabilities]`."""

    service: SourceText | None = maybe(
        text(kinds.SERVICE), "Who is asked: `pypi` or `osv`.", default="pypi"
    )
    url: SourceText | None = maybe(
        text(kinds.SOURCE),
        "An OSV service of your own, `https://osv.example.com/v1/query`; with `osv` only.",
    )
    severity: SourceText | None = maybe(
        text(kinds.SEVERITY), "Severity of a known vulnerability.", default="error"
    )
    ignore: tuple[IgnoreTable, ...] = group(
        many(row(IgnoreTable, '{ id = "CVE-2024-22195", reason = "...", expires = 2027-01-31 }')),
        "Advisories that are accepted, until a day.",
    )


#: Budgets by target: an identifier, a pattern, a backend or `*`.
SIZES = named(kinds.TARGETS, text(kinds.SIZE))
#: Lists by backend, or for all of them.
TextsByBackend = dict[str, tuple[SourceText, ...]]
DISTRIBUTIONS = named(kinds.BACKEND, many(text(kinds.DISTRIBUTION_RANGE)), wildcard=True)
LIBRARIES = named(kinds.BACKEND, many(text(kinds.SONAME_GLOB)), wildcard=True)
LICENSES = named(kinds.BACKEND, many(text(kinds.LICENSE)), wildcard=True)


class PolicyTable(Table):
    """`[policy]`. Keys of its tables are backends, or `*` for all."""

    allow_unresolved: dict[str, tuple[SourceText, ...]] = group(
        named(kinds.BACKEND, many(text(kinds.SONAME_GLOB)), wildcard=True),
        "Sonames (or patterns) that need not be in the image: the host's driver brings them.",
    )
    forbid_env: dict[str, tuple[SourceText, ...]] = group(
        named(kinds.BACKEND, many(text(kinds.VARIABLE_GLOB)), wildcard=True),
        "Patterns of environment variables that an image must not set.",
    )
    max_size: dict[str, SourceText] = group(
        SIZES, "Largest allowed size of the root file system: `3GB` (powers of ten) or `3GiB`."
    )
    max_download: dict[str, SourceText] = group(
        SIZES, "Most bytes that the wheels of a lock may have, to be downloaded."
    )
    max_foreign: dict[str, SourceText] = group(
        SIZES, "Most bytes of other backends that may be installed."
    )
    max_layers: dict[str, int] = group(
        named(kinds.TARGETS, whole(1, 10_000, "20")), "Most layers that an image may have."
    )
    bloat_threshold: SourceText | None = maybe(
        text(kinds.SIZE),
        "Foreign bytes up to which a distribution is not called bloat.",
        default="5MB",
    )
    vulnerabilities: VulnerabilitiesTable = group(
        row(VulnerabilitiesTable), "Who is asked for advisories, and which do not count."
    )
    gates: dict[str, tuple[SourceText, ...]] = group(
        named(kinds.BACKEND, many(text(kinds.GATE)), wildcard=True),
        "Gates that a build must have passed: one that did not run leaves it undecided.",
    )
    allow_distributions: TextsByBackend = group(
        DISTRIBUTIONS, "Distributions that may be there; every other one is an error."
    )
    forbid_distributions: TextsByBackend = group(
        DISTRIBUTIONS, "Distributions that must not be there: `xgboost<3`, `nvidia-*`."
    )
    allow_libraries: TextsByBackend = group(
        LIBRARIES, "Shared libraries that distributions may bring; every other one is an error."
    )
    forbid_libraries: TextsByBackend = group(
        LIBRARIES, "Sonames, or patterns for them, that must not be there."
    )
    allow_licenses: TextsByBackend = group(
        LICENSES, "SPDX identifiers of licenses that are accepted; every other one is an error."
    )
    forbid_licenses: TextsByBackend = group(LICENSES, "SPDX identifiers of licenses that are not.")
    pinned_bases: SourceText | None = maybe(
        text(kinds.PINNED),
        "What base images must have: a `digest`, a `tag` other than `latest`, or `none` of both.",
    )
    severity: dict[str, SourceText | dict[str, SourceText]] = group(
        named(
            kinds.RULE,
            either(
                text(kinds.POLICY_SEVERITY),
                str,
                named(kinds.BACKEND, text(kinds.POLICY_SEVERITY), wildcard=True),
            ),
        ),
        "What findings of a rule count: one severity, or one for each backend; `off` accepts them.",
    )


class SmokeTable(Table):
    """`[[smoke]]`: a command that must succeed inside the image."""

    name: SourceText = key(text(kinds.SMOKE), "Name of the check, in reports.")
    level: SourceText = key(
        text(kinds.LEVEL),
        "`import` needs no device, `device` needs one, `batch` does real work on it.",
    )
    select: tuple[SourceText, ...] = group(GLOBS, "Patterns for identifiers.", otherwise="all")
    command: Command = key(COMMAND, "The command; a string is split without a shell.")
    timeout: SourceText | None = maybe(
        text(kinds.DURATION), "Time after which it has failed.", default="120s"
    )


class NodeClassTable(Table):
    """`[node-class.NAME]`: a kind of machine that targets run on."""

    backend: SourceText = key(text(kinds.BACKEND), "The backend of its devices.")
    driver: SourceText | None = maybe(
        text(kinds.DRIVER), "Version of the driver, or a range.", otherwise="any"
    )
    archs: tuple[SourceText, ...] = group(many(text(kinds.ARCH)), "GPU architectures.")
    products: tuple[SourceText, ...] = group(
        many(text(kinds.PRODUCT), single=True),
        "Names of the devices; the catalogue says which architectures they have.",
    )
    memory: SourceText | None = maybe(text(kinds.SIZE), "Memory of one device.")
    count: int | None = maybe(whole(1, 10_000, "8"), "Devices of one machine.")
    interconnect: SourceText | None = maybe(
        text(kinds.INTERCONNECT), "How the devices are joined: `nvlink`, `xgmi`, `pcie`."
    )
    partition: SourceText | None = maybe(
        text(kinds.PARTITION), "MIG profile (`1g.10gb`) or AMD partition mode (`CPX/NPS4`)."
    )
    kernel: SourceText | None = maybe(text(kinds.KERNEL), "Version of the kernel, or a range.")
    container_runtime: SourceText | None = maybe(
        text(kinds.CONTAINER_RUNTIME), "Container runtime, with its version where it is known."
    )
    cpu: SourceText | None = maybe(
        text(kinds.CPU_LEVEL), "Instruction level of the host's processors."
    )
    resources: tuple[SourceText, ...] = group(
        many(text(kinds.RESOURCE), single=True), "Kubernetes resources that a pod asks for."
    )
    tolerations: tuple[SourceText, ...] = group(
        many(text(kinds.TOLERATION), single=True),
        "Taints that its pods tolerate, as `kubectl taint` spells them.",
    )
    cdi: tuple[SourceText, ...] = group(
        many(text(kinds.CDI_DEVICE), single=True), "Devices of the Container Device Interface."
    )
    image: SourceText | None = maybe(
        text(kinds.DIGESTED_IMAGE), "The golden base image of these machines, with its digest."
    )
    known_good: SourceText | None = maybe(
        text(kinds.DIGESTED_IMAGE), "The last image that is known to be good here."
    )
    fall_back: SourceText | None = maybe(
        text(kinds.DIGESTED_IMAGE), "The image to go back to when that fails."
    )
    labels: dict[str, SourceText] = group(
        named(kinds.LABEL, text(kinds.VALUE)), "Kubernetes labels of the nodes."
    )
    runs: tuple[SourceText, ...] = group(
        GLOBS, "Patterns for the targets that run there.", otherwise="all of its backend"
    )


class CheckWaiverTable(Table):
    """`[[waive-check]]`: checks of `preflight` whose failure somebody accepted."""

    rung: SourceText = key(text(kinds.RUNG), "The rung of the checks.")
    check: SourceText = key(
        text(kinds.CHECK_GLOB), "Pattern for what the checks are about: on `import`, the module."
    )
    select: tuple[SourceText, ...] = group(GLOBS, "Patterns for identifiers.", otherwise="all")
    reason: SourceText = key(text(kinds.TEXT), "Why the failure is acceptable.")
    owner: SourceText = key(text(kinds.OWNER), "Who answers for it.")
    expires: date = key(day(), "The last day on which it holds.")


class WaiverTable(Table):
    """`[[waive]]`: a finding that somebody accepted."""

    rule: SourceText = key(text(kinds.RULE), "Code of the rule.")
    select: tuple[SourceText, ...] = group(GLOBS, "Patterns for identifiers.", otherwise="all")
    distribution: SourceText | None = maybe(
        text(kinds.DISTRIBUTION_GLOB), "Pattern for distribution names."
    )
    path: SourceText | None = maybe(text(kinds.FILE_GLOB), "Pattern for paths.")
    reason: SourceText = key(text(kinds.TEXT), "Why the finding is acceptable.")
    owner: SourceText = key(text(kinds.OWNER), "Who answers for it.")
    expires: date = key(day(), "The last day on which it holds.")


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


class ExcludeTable(Table):
    """`[[exclude]]`: points that are taken out. With both keys, both must match."""

    select: tuple[SourceText, ...] = group(GLOBS, "Patterns for identifiers.")
    when: WhenTable | None = maybe(
        row(WhenTable, '{ backend = "oneapi", python = ">=3.13" }'), "Conditions on the axes."
    )
    reason: SourceText = key(
        text(kinds.TEXT), "Why they are taken out; `buildmatrix targets` shows it."
    )


class SubsetTable(Table):
    """`[subset.NAME]`: some of the targets, for `--subset NAME`."""

    select: tuple[SourceText, ...] = group(GLOBS, "Patterns for identifiers.", otherwise="all")
    latest: SourceText | None = maybe(
        text(kinds.LATEST),
        "`runtime`: of what is selected, only the latest runtime of each backend.",
    )


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


class ToolsTable(Table):
    """`[tools]`: images of helper stages."""

    uv: SourceText | None = maybe(
        text(kinds.IMAGE), "Image that holds the `uv` binary.", default=DEFAULT_TOOLS["uv"]
    )
    micromamba: SourceText | None = maybe(
        text(kinds.IMAGE),
        "Image that holds the `micromamba` binary, for locks of pixi and conda.",
        default=DEFAULT_TOOLS["micromamba"],
    )
    scanner: SourceText | None = maybe(
        text(kinds.IMAGE),
        "Image with a Python 3 that reads the finished root file system.",
        default=DEFAULT_TOOLS["scanner"],
    )


class CatalogueTable(Table):
    """`[catalogue]`."""

    files: tuple[SourceText, ...] = group(
        many(text(kinds.PATH)),
        "Data files of your own, in the order of reading: what belongs to which backend.",
    )


class GenerateTable(Table):
    """`[generate]`."""

    output: SourceText | None = maybe(
        text(kinds.PATH), "Folder for generated files.", default=DEFAULT_OUTPUT
    )


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
