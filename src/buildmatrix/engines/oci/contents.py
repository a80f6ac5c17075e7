"""From a target, its lock and its base image to the image that its Dockerfile describes."""

from __future__ import annotations

from buildmatrix.engines.oci.model import BaseImage, BuiltImage, Compression
from buildmatrix.engines.oci.store import ImageStore
from buildmatrix.errors import Problem
from buildmatrix.locks.model import Lock
from buildmatrix.progress import Progress
from buildmatrix.spec.model import Spec, Target


def refusals(spec: Spec, target: Target, lock: Lock) -> list[Problem]:
    """Why this engine cannot build `target`, each with its place and the way out; none if it can.

    Costs nothing: nothing is fetched, and no base is looked at. What only the base shows (it has
    no Python of that version) is raised by `assemble`, before any wheel is fetched.
    Raises `SpecError` for a template that cannot be rendered.
    """
    raise NotImplementedError


def assemble(
    spec: Spec,
    target: Target,
    lock: Lock,
    base: BaseImage,
    store: ImageStore,
    progress: Progress,
    *,
    compression: Compression = "gzip",
) -> BuiltImage:
    """The image of `target`, complete in `store`: the blobs of the base, too.

    The same target, lock, base and sources give the same image, on every machine and every day.
    Call it from several threads for several targets: what they share is made once.

    Raises:
        SpecError: what `refusals` says, or what only the base image shows.
        UndecidedError: a wheel or the base could not be fetched, or is not what the lock says.
    """
    raise NotImplementedError
