"""Options of `build`. Apart from its work, which takes long to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from buildmatrix.commands.options import JudgingOptions, SelectionOptions, option
from buildmatrix.matrix.model import RUNGS, Rung


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
