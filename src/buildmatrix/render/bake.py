"""`docker-bake.json`: every target in one file, for buildmatrix and for plain `docker buildx bake`.

Format: https://docs.docker.com/build/bake/reference/. Paths are relative to the folder that bake
is started in, which is the specification's. What belongs to one machine (mirror, secrets, network,
outputs) is not in it: the mirror is a variable, the rest comes by `--set`.
"""

from __future__ import annotations

import json

from buildmatrix.render.names import bake_name, scan_name
from buildmatrix.spec.model import Spec, Target

_MIRROR = "BUILDMATRIX_MIRROR"


def bake_file(spec: Spec) -> str:
    """The bake file of all targets; `docker buildx bake` without arguments builds all images.

    It is the same whichever targets a run selects: a file that depends on the last `--select` could
    not be checked against the specification.
    """
    targets = spec.targets
    definition = {
        "variable": {_MIRROR: {"default": ""}},
        "group": {"default": {"targets": sorted(bake_name(target.id) for target in targets)}},
        "target": {
            **{bake_name(target.id): _image(spec, target) for target in targets},
            **{scan_name(target.id): _scan(spec, target) for target in targets},
        },
    }
    return json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _image(spec: Spec, target: Target) -> dict[str, object]:
    return {
        "context": ".",
        "dockerfile": _literal(spec.dockerfile(target.id)),
        "platforms": [_literal(target.platform)],
        "tags": [_literal(reference) for reference in target.references],
        "args": {"MIRROR": f"${{{_MIRROR}}}"},
    }


def _scan(spec: Spec, target: Target) -> dict[str, object]:
    return {
        "context": _literal(f"{spec.output}/scan"),
        "contexts": {"rootfs": f"target:{bake_name(target.id)}"},
        "platforms": [_literal(target.platform)],
        "args": {"MIRROR": f"${{{_MIRROR}}}"},
    }


def _literal(text: str) -> str:
    """`text` without meaning to bake, which expands `${...}` and `%{...}` in JSON strings too."""
    return text.replace("${", "$${").replace("%{", "%%{")
