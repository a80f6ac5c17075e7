"""`buildmatrix targets`."""

from __future__ import annotations

import json

import click

from buildmatrix.cli.console import say
from buildmatrix.cli.options import CommandSettings, format_option, selection_options
from buildmatrix.cli.sharding import Sharding, load_shard, shard_options
from buildmatrix.spec.model import Spec, Target
from buildmatrix.text import JSON, JSON_LINE, STYLED


def _table(spec: Spec, targets: tuple[Target, ...]) -> str:
    rows = [("TARGET", "BASE", "IMAGE")]
    rows += [
        (target.id, target.base.final, target.references[0] if target.tags else "")
        for target in targets
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += [f"excluded: {point.id} ({point.reason})" for point in spec.excluded]
    return "\n".join(lines)


def _json(spec: Spec, targets: tuple[Target, ...]) -> str:
    document = {
        "project": spec.project,
        "targets": [
            {
                "id": target.id,
                "backend": target.backend,
                "runtime": target.runtime,
                "python": target.python,
                "variant": target.variant,
                "platform": target.platform,
                "base": {"build": target.base.build, "final": target.base.final},
                "image": target.image,
                "tags": list(target.tags),
                "lock": target.lock_file,
                "requirements": list(target.requirements),
                "archs": list(target.archs),
            }
            for target in targets
        ],
        "excluded": [{"id": point.id, "reason": point.reason} for point in spec.excluded],
    }
    return json.dumps(document, indent=2)


def github_matrix(_: Spec, targets: tuple[Target, ...]) -> str:
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


_FORMATS = {"table": (_table, STYLED), "json": (_json, JSON), "github": (github_matrix, JSON_LINE)}


@click.command("targets", short_help="Print the matrix.")
@selection_options
@shard_options
@format_option("style", list(_FORMATS), "`github` is a matrix for GitHub Actions.")
@click.pass_obj
def command(
    settings: CommandSettings,
    globs: tuple[str, ...],
    subset: str | None,
    sharding: Sharding | None,
    style: str,
) -> None:
    """Print the targets that the specification expands to."""
    spec, part = load_shard(settings, globs, subset, sharding)
    render, syntax = _FORMATS[style]
    say(render(spec, part.targets), syntax)
