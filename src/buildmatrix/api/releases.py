"""`promote` and `verify`, as functions: tags of staged images, and their signed verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.commands.options import CommandOptions, PromoteOptions, argument, option
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.reports.formats import PROMOTE, VERIFY

if TYPE_CHECKING:
    from buildmatrix.reports.verify import Promotion, Verification
    from buildmatrix.signing.keyless import CertificateCheck


def promote(options: PromoteOptions) -> CommandResult[Promotion]:
    """Set the tags of images that were staged, when every report is green.

    Raises a `BuildmatrixError` for reports that cannot be read or do not belong together.
    """
    from buildmatrix.commands.promote import promote
    from buildmatrix.net.registry_client import Registry
    from buildmatrix.reports.saved import read

    reports = [read(path) for path in options.files]
    # The day on which `verify` will ask, on all machines.
    today = datetime.now(UTC).date()
    with options.workspace.progress() as display, Registry() as registry:
        promotion, code = promote(registry, reports, options, today, display)
    return CommandResult(promotion, code, PROMOTE)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(CommandOptions):
    """Options of `verify`."""

    source: str = field(
        kw_only=False, metadata=argument("`registry:HOST/NAME[:TAG][@DIGEST]`, or its bare name")
    )
    backend: str = field(
        metadata={
            "help": "Backend that the image must be for.",
            "flags": (),
            "metavar": "NAME",
            "required": True,
        }
    )
    keys: Sequence[Path] = option(
        (), "Public key that may have signed it (cosign.pub); may be repeated.", "--key"
    )
    identities: Sequence[str] = option(
        (),
        "Accepted keyless signer: the URL of a workflow, or an e-mail address; * stands for any "
        "text; may be repeated.",
        "--identity",
        metavar="SUBJECT",
    )
    issuer: str | None = option(None, "OIDC issuer of --identity.", metavar="URL")
    trust_root: Path | None = option(
        None,
        "Trusted root of the Sigstore services that signed for --identity; defaults to the public "
        "services.",
    )
    max_age: str | None = option(
        None, "Maximum age of its catalogue: 30d, 4w, 720h.", metavar="DURATION"
    )
    platform: str | None = option(
        None, "Required platform; selects one of several images.", metavar="OS/ARCH"
    )
    smoke: bool = option(True, "Do not require smoke commands.", "--no-smoke")


def verify(options: VerifyOptions) -> CommandResult[Verification]:
    """Answer whether an image may be admitted, by its signed verdict; no layer is read.

    Raises `UsageError` for options that say nothing, or contradict each other.
    """
    from buildmatrix.commands.verify import AdmissionDemands, exit_code, verify
    from buildmatrix.images.documents import Platform
    from buildmatrix.net.registry_client import Registry
    from buildmatrix.signing.documents import read_public
    from buildmatrix.sources.images import reference_of

    if not options.keys and not options.identities:
        raise UsageError(
            "say who may have signed it: --key cosign.pub, or --identity SUBJECT --issuer URL"
        )
    reference = reference_of(options.source)
    try:
        wanted = Platform.parse(options.platform) if options.platform is not None else None
    except UndecidedError as error:
        raise UsageError(f"--platform: {error.message}") from None
    certificates = _certificates(options)
    demands = AdmissionDemands(
        options.backend,
        tuple(read_public(path) for path in options.keys),
        # Of the same moment on all machines, as `judged` is.
        datetime.now(UTC).date(),
        _age(options.max_age) if options.max_age is not None else None,
        smoke=options.smoke,
        platform=wanted,
        certificates=certificates,
    )
    with Registry() as registry:
        verification = verify(registry, options.source, reference, demands)
    return CommandResult(verification, exit_code(verification), VERIFY)


_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


def _age(text: str) -> timedelta:
    """`30d`, `4w`, `720h`. Raises `UsageError`."""
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", text, re.ASCII)
    if match is None:
        raise UsageError(f"--max-age {text}: write a duration such as 30d, 4w or 720h")
    return timedelta(hours=int(match[1]) * _HOURS[match[2]])


def _certificates(options: VerifyOptions) -> CertificateCheck | None:
    """Return the check of signatures by an identity; None if none may sign. Raises `UsageError`."""
    from buildmatrix.signing.keyless import CertificateCheck, Identity, load_trusted_root

    issuer = options.issuer
    if not options.identities:
        for name, value in (("--issuer", issuer), ("--trust-root", options.trust_root)):
            if value is not None:
                raise UsageError(f"{name} is about who signed without a key; add --identity")
        return None
    if issuer is None:
        raise UsageError(
            "--identity is known by an issuer: add --issuer URL, such as "
            "https://token.actions.githubusercontent.com"
        )
    root = load_trusted_root(options.trust_root)
    return CertificateCheck([Identity(subject, issuer) for subject in options.identities], root)
