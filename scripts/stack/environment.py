"""What a shell has to export to use the stack."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from . import engine, registry
from .errors import StackError
from .layout import Layout

# Where programs of several kinds are told of a private certificate authority.
_CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def variables(layout: Layout) -> dict[str, str]:
    """The variables that lead tools to the engine and the images that `up` prepared."""
    found = engine.find(layout)
    if found is None:
        raise StackError("No engine answers; run `python3 -m scripts.stack up` first.")
    result: dict[str, str] = {}
    if found.own:
        result["DOCKER_HOST"] = layout.docker_host
        result["DOCKER_CONFIG"] = str(layout.docker_config)
        result["BUILDMATRIX_NETWORK"] = "host"
    images = registry.find(layout)
    if images:
        result["BUILDMATRIX_MIRROR"] = images.prefix
    bundle = _ca_bundle()
    if bundle:
        result["BUILDMATRIX_CA"] = bundle
    return result


def script(layout: Layout) -> str:
    """Shell lines to evaluate."""
    values = variables(layout)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    if "DOCKER_HOST" in values:
        folder = shlex.quote(str(layout.bin))
        lines.append(f'case ":$PATH:" in *:{folder}:*) ;; *) export PATH={folder}:"$PATH" ;; esac')
    return "\n".join(lines) + "\n"


def _ca_bundle() -> str | None:
    """The bundle of certificate authorities that this machine's programs are told to use."""
    for variable in _CA_VARIABLES:
        path = os.environ.get(variable)
        if path and Path(path).is_file():
            return path
    return None
