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


def bake_name(target: str) -> str:
    """Return the bake target that builds the image of `target`: `cuda12_8-py312-server`."""
    return target.replace(".", "_")


def scan_name(target: str) -> str:
    """Return the bake target that scans it."""
    return f"scan-{bake_name(target)}"


def staged_name(target: str, root: Path) -> str:
    """Return the name of an image on one machine until its gates have passed.

    It includes the specification's folder `root`: two projects may have targets of one name.
    """
    project = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
    # A tag holds 128 characters (distribution/reference, `regexp.go`).
    return f"buildmatrix-staged:{project}-{target}"[: len("buildmatrix-staged:") + 128]


def site_folders(python: str) -> tuple[str, str]:
    """Return the folders of an image that a wheel's files and its `data` are installed into.

    Source: `install` in templates/_macros.j2.
    """
    return f"opt/venv/lib/python{python}/site-packages", "opt/venv"


# The bake file


_MIRROR = "BUILDMATRIX_MIRROR"


def bake_file(spec: Spec) -> str:
    """Return the bake file of all targets; `docker buildx bake` alone builds all images.

    It does not depend on the targets that a run selects: otherwise it could not be checked against
    the specification.
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
    """Escape `${...}` and `%{...}`, which bake expands in JSON strings too."""
    return text.replace("${", "$${").replace("%{", "%%{")
