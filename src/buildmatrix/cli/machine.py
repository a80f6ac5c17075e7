"""What commands that read a SOURCE use of this machine: engine, index, caches, specification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.cli.cache import fact_cache, user_cache
from buildmatrix.cli.console import complain
from buildmatrix.cli.options import CommandSettings, load
from buildmatrix.cli.surroundings import engine, engine_with_images, mirrored_registry
from buildmatrix.cli.wheels import wheel_reader
from buildmatrix.engines.choice import AUTO

if TYPE_CHECKING:
    from buildmatrix.registry.client import Registry
    from buildmatrix.sources.model import Command, OnlineIndex, ReadingOptions, Source
    from buildmatrix.spec.model import Spec


@contextmanager
def reading_options(
    settings: CommandSettings,
    *,
    engine_name: str = AUTO,
    platform: str | None = None,
    tables: bool = False,
    no_cache: bool = False,
    offline: bool = False,
    deep: bool = False,
    python: str | None = None,
) -> Iterator[ReadingOptions]:
    """How a SOURCE is read here; what the first one opens is closed at the end."""
    from buildmatrix.sources.model import OnlineIndex, ReadingOptions

    with ExitStack() as stack:

        @cache
        def index() -> OnlineIndex:
            from buildmatrix.cli.progress import progress

            kept = user_cache(no_cache)
            display = stack.enter_context(progress(settings))
            reader = stack.enter_context(wheel_reader(offline, kept))
            return OnlineIndex(reader, display, kept, offline, deep, python)

        @cache
        def registry() -> Registry:
            return stack.enter_context(mirrored_registry(settings, offline=offline))

        yield ReadingOptions(
            lambda: engine_with_images(settings, engine_name),
            platform=platform,
            tables=tables,
            cache=lambda: fact_cache(no_cache),
            index=index,
            registry=registry,
            data_files=lambda: data_files(settings),
            note=lambda text: note(settings, text),
            engine_named=lambda name: engine(settings, name),
        )


def parse(
    text: str, command: Command, settings: CommandSettings, spec: Callable[[], Spec | None]
) -> Source:
    """What a command takes SOURCE for. Raises `UsageError`."""
    from buildmatrix.sources.model import Argument
    from buildmatrix.sources.parse import parse

    return parse(Argument(text, command, specification=settings.file, spec=spec))


def specification(settings: CommandSettings) -> Callable[[], Spec | None]:
    """Loads the specification once, when it is needed; None where there is no file of that name."""
    return cache(lambda: load(settings) if settings.file.is_file() else None)


def data_files(settings: CommandSettings) -> tuple[Path, ...]:
    """The user's own data files for the catalogue, for a SOURCE that is no target."""
    from buildmatrix.spec.paths import read_data_files

    return read_data_files(settings.file)


def note(settings: CommandSettings, text: str) -> None:
    """Say what takes long."""
    if not settings.quiet:
        complain(text)
