"""`docker-bake.json`: every target in one file, for buildmatrix and for plain `docker buildx bake`.

Format: https://docs.docker.com/build/bake/reference/. Paths are relative to the folder that bake
is started in, which is the specification's. Settings of one machine (mirror, secrets, network,
outputs) are not in it: the mirror is a variable, the rest comes by `--set`.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from buildmatrix.matrix.model import Spec, Target

# Names in the bake file. bake allows letters, digits, `_` and `-` in them


def bake_name(target: str) -> str:
    """The bake target that builds the image of `target`: `cuda12_8-py312-server`."""
    return target.replace(".", "_")


def scan_name(target: str) -> str:
    """The bake target that scans it."""
    return f"scan-{bake_name(target)}"


def staged_name(target: str, root: Path) -> str:
    """The name that an image has on one machine until its gates have passed.

    The specification's folder `root` is part of it: two projects may have targets of one name.
    """
    project = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
    # A tag holds 128 characters (distribution/reference, `regexp.go`).
    return f"buildmatrix-staged:{project}-{target}"[: len("buildmatrix-staged:") + 128]


def site_folders(python: str) -> tuple[str, str]:
    """Return the folders of an image that a wheel's files and its `data` are installed into.

    Source: `install` in templates/_macros.j2.
    """
    return f"opt/venv/lib/python{python}/site-packages", "opt/venv"


# `docker-bake.json`: every target in one file, for buildmatrix and for plain `docker buildx bake`.
#
# Format: https://docs.docker.com/build/bake/reference/. Paths are relative to the folder that bake
# is started in, which is the specification's. What belongs to one machine (mirror, secrets,
# network, outputs) is not in it: the mirror is a variable, the rest comes by `--set`.


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
