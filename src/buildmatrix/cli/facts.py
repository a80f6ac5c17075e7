"""The cache of facts, for commands that need nothing else of `scan`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from buildmatrix.cli.console import complain

if TYPE_CHECKING:
    from buildmatrix.store.facts import FactCache


def fact_cache(no_cache: bool) -> FactCache | None:
    """The cache of facts of this user; None when it is not wanted."""
    from buildmatrix.store.facts import FactCache, default_folder

    if no_cache:
        return None
    return FactCache(default_folder(os.environ), complain)
