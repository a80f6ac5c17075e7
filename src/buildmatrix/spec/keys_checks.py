"""Keys that say what is checked and what is accepted: smoke, machines, waivers."""

# ruff: noqa: RUF009 (`key` makes a field, like `dataclasses.field`; ruff knows only the latter)
from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from buildmatrix.spec import kinds
from buildmatrix.spec.keys_settings import COMMAND, GLOBS, Command
from buildmatrix.spec.shapes import SourceText, day, many, named, text, whole
from buildmatrix.spec.tables import Table, group, key, maybe


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
