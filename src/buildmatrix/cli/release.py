"""`promote` and `verify`: tags of staged images, and their signed verdicts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.cli.options import CommandSettings, formats_option, option, output_option
from buildmatrix.cli.output import check_formats, write_document
from buildmatrix.cli.progress import progress
from buildmatrix.reports.formats import PROMOTE, VERIFY, names

if TYPE_CHECKING:
    from buildmatrix.judge.acceptance import FailOn
    from buildmatrix.signing.keyless import CertificateCheck


PROMOTE_FORMATS = names(PROMOTE)


@click.command("promote")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@formats_option(PROMOTE_FORMATS)
@output_option()
@option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default="error",
    show_default=True,
    help="Lowest severity that keeps every tag where it is.",
)
@option("--strict", is_flag=True, help="Treat undecided results as failures.")
@click.pass_obj
def promote_command(
    settings: CommandSettings,
    /,
    files: tuple[Path, ...],
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
) -> int:
    """Set all tags of the images that `build --stage` pushed, when every report is green.

    FILES are the reports (--format json) of all machines of a run. Nothing is set while one of
    them is not green, what one of them accepted until a day is over, or one of their images or of
    its verdicts is not in its registry any more. A run that was stopped says which tags it set; run
    it again to go on.
    """
    from buildmatrix.commands.promote import promote
    from buildmatrix.net.registry.client import Registry
    from buildmatrix.reports.run.saved import read

    pairs = check_formats(formats, output, PROMOTE_FORMATS)
    reports = [read(path) for path in files]
    with progress(settings) as display, Registry() as registry:
        promotion, code = promote(
            # The day on which `verify` will ask, on all machines.
            registry,
            reports,
            fail_on,
            strict,
            datetime.now(UTC).date(),
            display,
        )
    write_document(PROMOTE, promotion, pairs, output)
    return code


VERIFY_FORMATS = names(VERIFY)
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


def _age(text: str) -> timedelta:
    """`30d`, `4w`, `720h`. Raises `UsageError`."""
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", text, re.ASCII)
    if match is None:
        raise UsageError(f"--max-age {text}: write a duration such as 30d, 4w or 720h")
    return timedelta(hours=int(match[1]) * _HOURS[match[2]])


def _certificates(
    subjects: tuple[str, ...], issuer: str | None, trust_root: Path | None
) -> CertificateCheck | None:
    """Return the check of signatures by an identity; None if none may sign. Raises `UsageError`."""
    from buildmatrix.signing.keyless import CertificateCheck, Identity, load_trusted_root

    if not subjects:
        for name, value in (("--issuer", issuer), ("--trust-root", trust_root)):
            if value is not None:
                raise UsageError(f"{name} is about who signed without a key; add --identity")
        return None
    if issuer is None:
        raise UsageError(
            "--identity is known by an issuer: add --issuer URL, such as "
            "https://token.actions.githubusercontent.com"
        )
    root = load_trusted_root(trust_root)
    return CertificateCheck([Identity(subject, issuer) for subject in subjects], root)


@click.command("verify")
@click.argument("source")
@option("--backend", metavar="NAME", required=True, help="Backend that the image must be for.")
@option(
    "--key",
    "keys",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Public key that may have signed it (cosign.pub); may be repeated.",
)
@option(
    "--identity",
    "subjects",
    metavar="SUBJECT",
    multiple=True,
    help="Accepted keyless signer: the URL of a workflow, or an e-mail address; * stands for any "
    "text; may be repeated.",
)
@option("--issuer", metavar="URL", help="OIDC issuer of --identity.")
@option(
    "--trust-root",
    type=click.Path(path_type=Path),
    help="Trusted root of the Sigstore services that signed for --identity; defaults to the public "
    "services.",
)
@option("--max-age", metavar="DURATION", help="Maximum age of its catalogue: 30d, 4w, 720h.")
@option("--platform", metavar="OS/ARCH", help="Required platform; selects one of several images.")
@option("--no-smoke", is_flag=True, help="Do not require smoke commands.")
@formats_option(VERIFY_FORMATS)
@output_option()
def verify_command(
    source: str,
    backend: str,
    keys: tuple[Path, ...],
    subjects: tuple[str, ...],
    issuer: str | None,
    trust_root: Path | None,
    max_age: str | None,
    platform: str | None,
    no_smoke: bool,
    formats: tuple[str, ...],
    output: Path | None,
) -> int:
    """Answer whether an image may be admitted: registry:HOST/NAME[:TAG][@DIGEST], or its bare name.

    Its signed verdict is read, and no layer. 0: it is proved to be for the backend, all gates
    passed, and what was accepted still is. 1: it is not, and each reason is told. 3: the registry
    cannot be asked, so it is unknown.
    """
    from buildmatrix.commands.verify import AdmissionDemands, exit_code, verify
    from buildmatrix.images.oci.documents import Platform
    from buildmatrix.net.registry.client import Registry
    from buildmatrix.signing.keys import read_public
    from buildmatrix.sources.images import reference_of

    pairs = check_formats(formats, output, VERIFY_FORMATS)
    if not keys and not subjects:
        raise UsageError(
            "say who may have signed it: --key cosign.pub, or --identity SUBJECT --issuer URL"
        )
    reference = reference_of(source)
    try:
        wanted = Platform.parse(platform) if platform is not None else None
    except UndecidedError as error:
        raise UsageError(f"--platform: {error.message}") from None
    certificates = _certificates(subjects, issuer, trust_root)
    demands = AdmissionDemands(
        backend,
        tuple(read_public(path) for path in keys),
        # Of the same moment on all machines, as `judged` is.
        datetime.now(UTC).date(),
        _age(max_age) if max_age is not None else None,
        smoke=not no_smoke,
        platform=wanted,
        certificates=certificates,
    )
    with Registry() as registry:
        verification = verify(registry, source, reference, demands)
    write_document(VERIFY, verification, pairs, output)
    return exit_code(verification)
