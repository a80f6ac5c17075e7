"""`python3 -m scripts.public_registry`: whether the registry of the example's bases answers."""

from __future__ import annotations

import sys

from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.net.addresses import Patience
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference

PATIENCE = Patience(tries=1, connect=5.0, silence=10.0, request=15.0)


def main() -> int:
    """0 if it answers, 1 if not."""
    with Registry(patience=PATIENCE) as registry:
        try:
            registry.resolve(Reference.parse("python:3.11-slim-bookworm"))
        except BuildmatrixError as error:
            print(error.message, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
