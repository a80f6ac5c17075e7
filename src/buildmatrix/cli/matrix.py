"""`init`, `targets`, `lock` and `generate`: the matrix, its locks and its Dockerfiles."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.api.building import LockOptions, lock, report_bases
from buildmatrix.base.data import replace
from buildmatrix.base.errors import EXIT_FINDINGS, EXIT_OK, UsageError
from buildmatrix.base.text import JSON, JSON_LINE, STYLED, count
from buildmatrix.cli.console import align, complain, say
from buildmatrix.cli.options import CommandSettings, format_option, option, take
from buildmatrix.cli.shards import Sharding, load_shard, shard_options
from buildmatrix.commands.options import SelectionOptions
from buildmatrix.matrix.model import Spec, Target
from buildmatrix.reports.terminal import wrapped

if TYPE_CHECKING:
    from buildmatrix.locks.model import Lock


#: Looked for in this order when no input is named.
INPUTS = ("requirements.in", "requirements.txt", "pyproject.toml")
#: Looked for beside a lock.
MANIFESTS = ("pyproject.toml", "pixi.toml")


@click.command("init")
@click.argument("inputs", nargs=-1, type=click.Path(path_type=Path))
@option(
    "--backend",
    "backends",
    metavar="NAME",
    multiple=True,
    help="Write it for this backend of the catalogue. May be given more than once.",
)
@option(
    "--distribution",
    default="",
    metavar="NAME",
    help="Take base images of this distribution: ubi9, rockylinux9 or almalinux8.",
)
@option("--force", is_flag=True, help="Replace a specification that exists.")
@option("--offline", is_flag=True, help="Do not query an index about torch, or any registry.")
@click.pass_obj
def init_command(
    settings: CommandSettings,
    inputs: tuple[Path, ...],
    backends: tuple[str, ...],
    distribution: str,
    force: bool,
    offline: bool,
) -> None:
    """Write a first specification from a lock, requirements files or pyproject.toml.

    Its comments say why each line is there. A lock that the project has is installed as it is.
    """
    from buildmatrix.commands.init import first_spec, resolved_torch
    from buildmatrix.commands.init_locked import divide_inputs, find_locks
    from buildmatrix.commands.init_sections import Answers, Digests

    folder = settings.file.parent
    if inputs:
        locks, others = divide_inputs(inputs)
    else:
        locks = find_locks(folder)
        named = MANIFESTS if locks else INPUTS
        others = tuple(path for name in named if (path := folder / name).is_file())[:1]
    if locks and not any(path.name in MANIFESTS for path in others):
        beside = (place / name for name in MANIFESTS for place in (locks[0].parent, folder))
        others += tuple(path for path in beside if path.is_file())[:1]
    if not (locks or others):
        raise UsageError(f"nothing to start from: name a requirements file, or write {INPUTS[0]}")
    if settings.file.exists() and not force:
        raise UsageError(f"{settings.file} exists; give --force to replace it")
    write = partial(first_spec, others, folder, backends, locks=locks, distribution=distribution)
    if offline:
        text = write(answers=Answers(torch=None))
    else:
        with Digests() as digests:
            torch = "" if locks else resolved_torch(others, folder)
            text = write(answers=Answers(torch, digests.of))
    settings.file.write_text(text, encoding="utf-8")
    complain(f"wrote {settings.file} from {', '.join(map(str, (*locks, *others)))}")
    file = "" if settings.file == Path("buildmatrix.toml") else f" -f {settings.file}"
    complain(f"next: buildmatrix{file} build")


def _table(spec: Spec, targets: tuple[Target, ...]) -> str:
    """Return one line per target, or three on a terminal too narrow for that."""
    rows = [("TARGET", "BASE", "IMAGE")]
    rows += [
        (target.id, target.base.final, target.references[0] if target.tags else "")
        for target in targets
    ]
    lines = align(rows)
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    if max(map(len, lines)) > room:
        lines = [
            line
            for id, base, image in rows[1:]
            for line in (id, f"  base   {base}", *([f"  image  {image}"] if image else []))
        ]
    for point in spec.excluded:
        lines += wrapped(f"excluded: {point.id} ({point.reason})", room, further="  ")
    return "\n".join(lines)


def _axes(target: Target) -> dict[str, object]:
    names = ("id", "backend", "runtime", "python", "variant", "platform")
    return {name: getattr(target, name) for name in names}


def _json(spec: Spec, targets: tuple[Target, ...]) -> str:
    document = {
        "project": spec.project,
        "targets": [
            {
                **_axes(target),
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
    jobs = [
        _axes(target) | ({"runner": target.runner} if target.runner else {}) for target in targets
    ]
    return json.dumps({"include": jobs}, separators=(",", ":"))


_FORMATS = {"table": (_table, STYLED), "json": (_json, JSON), "github": (github_matrix, JSON_LINE)}


@click.command("targets")
@take(SelectionOptions)
@shard_options
@format_option("style", list(_FORMATS), "`github` is a matrix for GitHub Actions.")
def targets_command(options: SelectionOptions, /, sharding: Sharding | None, style: str) -> None:
    """Print the targets that the specification expands to."""
    spec, part = load_shard(options, sharding)
    render, syntax = _FORMATS[style]
    say(render(spec, part.targets), syntax)


@click.command("lock")
@take(
    LockOptions,
    check=shard_options,
    jobs=option(
        "-P",
        "--upgrade-package",
        "packages",
        multiple=True,
        metavar="NAME",
        help="The same as --upgrade=NAME.",
    ),
    last=option("--offline", is_flag=True, help="Use caches only."),
)
@click.pass_obj
def lock_command(
    settings: CommandSettings,
    options: LockOptions,
    /,
    sharding: Sharding | None,
    packages: tuple[str, ...],
) -> int:
    """Resolve every target for its own platform, Python and index, with hashes (PEP 751).

    Locks that are current are left alone, and then no network is used. A lock that the project
    has is not resolved: the files of the target are taken from it.
    """
    ids = None
    if sharding is not None:
        ids = [target.id for target in load_shard(options, sharding)[1].targets]
    result = lock(replace(options, upgrade=(*options.upgrade, *packages)), ids)
    if options.check or not settings.quiet:
        for id, state in result.document.states.items():
            say(f"{id}: {state}")
        for line in result.document.changes:
            say(line)
    return result.exit_code


@click.command("generate")
@take(SelectionOptions)
@option("--check", is_flag=True, help="Write nothing; exit 1 when files are out of date.")
@option(
    "-o", "--folder", "--output", "output", type=click.Path(path_type=Path), help="Where to write."
)
def generate_command(options: SelectionOptions, /, check: bool, output: Path | None) -> int:
    """Write one Dockerfile per target and one docker-bake.json for all of them.

    The same specification and locks give the same bytes.
    """
    from buildmatrix.engines.dockerfile import differences, generate, write
    from buildmatrix.locks.pylock import read_lock

    log, (spec, part) = options.workspace.log, load_shard(options, None)
    targets = part.targets
    if output is not None:
        spec = replace(spec, output=output.as_posix())
    locks: dict[str, Lock] = {}
    for target in targets:
        path = spec.root / target.lock
        if not path.is_file():
            raise UsageError(f"{target.id} has no lock at {target.lock}; run `buildmatrix lock`")
        locks[target.id] = read_lock(path)
    files = generate(spec, targets, locks)
    if check:
        changed = differences(spec, files)
        for line in changed:
            say(line)
        number = count(len(files), "file")
        text = f"{len(changed)} not current of {number}; run `buildmatrix generate`"
        log("info", text if changed else f"{number} checked, all current")
        return EXIT_FINDINGS if changed else EXIT_OK
    write(spec, files)
    log("info", f"wrote {len(files)} files to {spec.output}")
    return report_bases(spec, targets, log)
