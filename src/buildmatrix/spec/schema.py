"""The JSON schema of `buildmatrix.toml`, for editors."""

from __future__ import annotations

from buildmatrix.spec.keys import File
from buildmatrix.spec.shape import Json
from buildmatrix.spec.tables import Row


def schema() -> Json:
    """JSON schema, draft 2020-12.

    It comes from the same table of keys that the loader reads with. A file that it refuses is
    refused by the loader too; the loader also checks what a schema cannot say.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "buildmatrix.toml",
        "description": "The matrix of images that buildmatrix builds and checks.",
        **Row(File).schema(),
    }
