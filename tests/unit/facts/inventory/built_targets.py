"""State that a build leaves of a target."""

from __future__ import annotations

from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.images import store
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import BuildRecord, TargetFiles

#: Digest of the image of a build.
BUILT = f"sha256:{'0' * 64}"


def leave_built(files: TargetFiles, inventory: Inventory) -> None:
    """Write an inventory and a record that names it."""
    store.write(files.inventory, inventory)
    leave_record(files)


def leave_record(files: TargetFiles, image: str = BUILT) -> None:
    """Write a record that names the inventory that is there."""
    record = BuildRecord(
        key="0" * 64,
        digest=image,
        config=None,
        loaded=True,
        tags=(),
        inventory=state_folder.file_sha256(files.inventory),
        seconds=1.0,
    )
    state_folder.write(files, record)
