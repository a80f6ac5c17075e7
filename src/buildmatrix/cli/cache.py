"""The cache of this user, for all commands."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.cli.console import complain

if TYPE_CHECKING:
    from buildmatrix.store.cache import Cache
    from buildmatrix.store.facts import FactCache


def user_cache(no_cache: bool = False) -> Cache:
    """The cache of this user; one that keeps nothing where it is not wanted."""
    from buildmatrix.store.cache import Cache, default_folder

    return Cache(None) if no_cache else _cache_in(default_folder(os.environ))


@functools.cache
def _cache_in(folder: Path) -> Cache:
    """One for the whole run: what is wrong with it is said once."""
    from buildmatrix.store.cache import Cache

    return Cache(
        folder,
        lambda text: complain(f"{text} (set BUILDMATRIX_CACHE to another folder)"),
    )


def fact_cache(no_cache: bool) -> FactCache | None:
    """The cache of facts of this user; None when it is not wanted."""
    if no_cache:
        return None
    from buildmatrix.store.facts import FactCache

    return FactCache(user_cache())
