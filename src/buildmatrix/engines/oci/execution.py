"""How instructions of a Dockerfile change the configuration of an image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from buildmatrix.engines.oci.recipe import Command
from buildmatrix.oci.documents import Execution
from buildmatrix.oci.layers import FIXED_TIME


def commanded(run: Execution, step: Command, *, is_command_ours: bool) -> Execution:
    """After a CMD or ENTRYPOINT; `is_command_ours` where the CMD is not the base's."""
    shell = run.shell or ("/bin/sh", "-c")
    command = (*shell, step.words) if isinstance(step.words, str) else step.words
    if not step.is_entrypoint:
        return msgspec.structs.replace(run, cmd=command)
    # As BuildKit: the base's CMD was written for the base's ENTRYPOINT.
    cmd = run.cmd if is_command_ours else ()
    return msgspec.structs.replace(run, entrypoint=command, cmd=cmd)


def declared(run: Execution, keyword: str, values: Sequence[str]) -> Execution:
    """After a STOPSIGNAL, VOLUME or EXPOSE."""
    if keyword == "STOPSIGNAL":
        return msgspec.structs.replace(run, stop_signal=" ".join(values))
    if keyword == "VOLUME":
        volumes = {**run.volumes, **{value: {} for value in values}}
        return msgspec.structs.replace(run, volumes=volumes)
    exposed = dict(run.exposed_ports)
    exposed.update((value if "/" in value else f"{value}/tcp", {}) for value in values)
    return msgspec.structs.replace(run, exposed_ports=exposed)


def created() -> str:
    """When an image was made: not now, so that it is the same tomorrow.

    Source: https://reproducible-builds.org/specs/source-date-epoch/.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(epoch) if epoch.isdecimal() and len(epoch) < 12 else FIXED_TIME
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
