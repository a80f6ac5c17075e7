"""`buildmatrix verify`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from buildmatrix.cli.options import formats_option, option
from buildmatrix.cli.output import check_formats, write_document
from buildmatrix.errors import UndecidedError, UsageError
from buildmatrix.reports.formats import VERIFY, names

FORMATS = names(VERIFY)
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


def _age(text: str) -> timedelta:
    """`30d`, `4w`, `720h`. Raises `UsageError`."""
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", text, re.ASCII)
    if match is None:
        raise UsageError(f"--max-age {text}: write a duration such as 30d, 4w or 720h")
    return timedelta(hours=int(match[1]) * _HOURS[match[2]])


@click.command("verify", short_help="Check the proof that an image in a registry has with it.")
@click.argument("source")
@option("--backend", metavar="NAME", required=True, help="What the image has to be for.")
@option(
    "--key",
    "keys",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="Public key that may have signed it (cosign.pub); may be repeated.",
)
@option("--max-age", metavar="DURATION", help="How old its catalogue may be: 30d, 4w, 720h.")
@option("--platform", metavar="OS/ARCH", help="What it has to run on; of several images, which.")
@option("--no-smoke", is_flag=True, help="Smoke commands need not have run.")
@formats_option(FORMATS)
@option("-o", "--output", type=click.Path(path_type=Path), help="File; - is stdout.")
def command(
    source: str,
    backend: str,
    keys: tuple[Path, ...],
    max_age: str | None,
    platform: str | None,
    no_smoke: bool,
    formats: tuple[str, ...],
    output: Path | None,
) -> int:
    """Answer whether an image may be admitted: registry:HOST/NAME[:TAG][@DIGEST], or its bare name.

    Its signed verdict is read, and no layer. 0: it is proved to be for the backend, all gates
    passed, and what was accepted still is. 1: it is not, and each reason is told. 3: the registry
    cannot be asked, so nobody knows.
    """
    from buildmatrix.attestation.keys import read_public
    from buildmatrix.oci.documents import Platform
    from buildmatrix.registry.client import Registry
    from buildmatrix.sources.registry import reference_of
    from buildmatrix.verify.judgement import Demands
    from buildmatrix.verify.run import exit_code, verify

    pairs = check_formats(formats, output, FORMATS)
    reference = reference_of(source)
    try:
        wanted = Platform.parse(platform) if platform is not None else None
    except UndecidedError as error:
        raise UsageError(f"--platform: {error.message}") from None
    demands = Demands(
        backend,
        tuple(read_public(path) for path in keys),
        # Of the same moment on all machines, as `judged` is.
        datetime.now(UTC).date(),
        _age(max_age) if max_age is not None else None,
        smoke=not no_smoke,
        platform=wanted,
    )
    with Registry() as registry:
        verification = verify(registry, source, reference, demands)
    write_document(VERIFY, verification, pairs, output)
    return exit_code(verification)
