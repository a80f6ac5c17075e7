"""`build --save`: images as archives that `docker load` takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.cli.console import complain
from buildmatrix.cli.options import CommandSettings
from buildmatrix.errors import UsageError

if TYPE_CHECKING:
    from buildmatrix.commands.build.run import Result
    from buildmatrix.engines.model import Engine
    from buildmatrix.spec.model import Target

#: What stands for the target's identifier in the name of a file.
_ID = "{id}"


def check_save(file: str, targets: Sequence[Target]) -> None:
    """Raises `UsageError` where several images would go into one file."""
    if len(targets) > 1 and _ID not in file:
        raise UsageError(
            f"--save {file}: {len(targets)} targets are selected, and an archive holds one image; "
            f"write {_ID} into the name, or select one target"
        )
    if not Path(file).absolute().parent.is_dir():
        raise UsageError(f"--save {file}: there is no folder {Path(file).parent}")


def save_images(file: str, result: Result, engine: Engine, settings: CommandSettings) -> None:
    """Write the archives of the targets that are green. Raises `BuildError` when a disk is full."""
    from buildmatrix.engines.process import writing
    from buildmatrix.inventory.writing import open_atomically

    for target in result.report.targets:
        if target.error or any(state in ("failed", "undecided") for state in target.gates.values()):
            complain(f"{target.id}: not saved, as it is not green")
            continue
        path = Path(file.replace(_ID, target.id))
        assert target.image is not None
        with (
            writing(path.parent),
            open_atomically(path) as archive,
            engine.export(target.image) as chunks,
        ):
            for chunk in chunks:
                archive.write(chunk)
        if not settings.quiet:
            complain(f"{target.id}: saved as {path}")
