"""`--no-vulnerabilities`: whether advisories are asked for, and where answers are kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from buildmatrix.cli.options import option

if TYPE_CHECKING:
    from buildmatrix.vulnerabilities.advisories import Asking

vulnerabilities_option = option(
    "--no-vulnerabilities", is_flag=True, help="Ask nobody about known vulnerabilities."
)


def asking(no_vulnerabilities: bool, offline: bool, no_cache: bool = False) -> Asking | None:
    """How to ask for advisories; None for not at all."""
    from buildmatrix.store.facts import default_folder
    from buildmatrix.vulnerabilities.advisories import Asking

    if no_vulnerabilities:
        return None
    folder = None if no_cache else default_folder(os.environ).parent / "advisories"
    return Asking(offline=offline, folder=folder)
