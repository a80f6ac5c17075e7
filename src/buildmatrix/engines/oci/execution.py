"""Effects of Dockerfile instructions on the configuration of an image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from buildmatrix.engines.oci.recipe import Command
from buildmatrix.oci.documents import Execution
from buildmatrix.oci.layers import FIXED_TIME


def commanded(run: Execution, step: Command, *, is_command_ours: bool) -> Execution:
    """Apply a CMD or ENTRYPOINT; `is_command_ours` if the CMD is not the base's."""
    shell = run.shell or ("/bin/sh", "-c")
    command = (*shell, step.words) if isinstance(step.words, str) else step.words
    if not step.is_entrypoint:
        return msgspec.structs.replace(run, cmd=command)
    # Like BuildKit: the base's CMD belongs to the base's ENTRYPOINT.
    cmd = run.cmd if is_command_ours else ()
    return msgspec.structs.replace(run, entrypoint=command, cmd=cmd)


def declared(run: Execution, keyword: str, values: Sequence[str]) -> Execution:
    """Apply a STOPSIGNAL, VOLUME or EXPOSE."""
    if keyword == "STOPSIGNAL":
        return msgspec.structs.replace(run, stop_signal=" ".join(values))
    if keyword == "VOLUME":
        volumes = {**run.volumes, **{value: {} for value in values}}
        return msgspec.structs.replace(run, volumes=volumes)
    exposed = dict(run.exposed_ports)
    exposed.update((value if "/" in value else f"{value}/tcp", {}) for value in values)
    return msgspec.structs.replace(run, exposed_ports=exposed)


def created() -> str:
    """Return the creation time of images: a constant, for reproducible images.

    Source: https://reproducible-builds.org/specs/source-date-epoch/.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(epoch) if epoch.isdecimal() and len(epoch) < 12 else FIXED_TIME
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
