"""`--no-vulnerabilities`: whether advisories are asked for, and where answers are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from buildmatrix.cli.options import option

if TYPE_CHECKING:
    from buildmatrix.store.cache import Cache
    from buildmatrix.vulnerabilities.advisories import AdvisoryOptions

vulnerabilities_option = option(
    "--no-vulnerabilities", is_flag=True, help="Do not check for known vulnerabilities."
)


def asking(no_vulnerabilities: bool, offline: bool, cache: Cache) -> AdvisoryOptions | None:
    """How to ask for advisories; None for not at all."""
    from buildmatrix.vulnerabilities.advisories import AdvisoryOptions

    if no_vulnerabilities:
        return None
    return AdvisoryOptions(offline=offline, cache=cache)
