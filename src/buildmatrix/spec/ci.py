"""The matrix in the form that CI systems read."""

from __future__ import annotations

import json
from collections.abc import Sequence

from buildmatrix.spec.model import Target


def github_matrix(targets: Sequence[Target]) -> str:
    """A matrix for GitHub Actions, as one line of JSON: `{"include":[{"id":...}, ...]}`.

    Made for `matrix: ${{ fromJSON(...) }}`: one job per target. `runner` is there only for targets
    that name one.
    """
    jobs = []
    for target in targets:
        job = {
            "id": target.id,
            "backend": target.backend,
            "runtime": target.runtime,
            "python": target.python,
            "variant": target.variant,
            "platform": target.platform,
        }
        jobs.append(job | ({"runner": target.runner} if target.runner else {}))
    return json.dumps({"include": jobs}, separators=(",", ":"))
