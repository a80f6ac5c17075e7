"""The command line: `python3 -m scripts.stack up|down|status|env`."""

from __future__ import annotations

import argparse
import json
import sys

from . import bases, engine, environment, judges, registry
from .errors import StackError
from .layout import Layout
from .process import State, exclusive
from .progress import say


def _up(arguments: argparse.Namespace, layout: Layout) -> None:
    """Bring up what is missing."""
    layout.create()
    with exclusive(layout.lock):
        layout.clear_drafts()
        found = engine.ensure(layout)
        if arguments.engine_only:
            return
        if not found.own:
            say("registry, bases: left out, this engine pulls images from where it always does")
            return
        images = registry.ensure(layout)
        judges.ensure(layout)
        if not arguments.no_bases:
            bases.Builder(layout, images).ensure(arguments.only, arguments.also)
    say('ready: eval "$(python3 -m scripts.stack env)"')


def _down(_: argparse.Namespace, layout: Layout) -> None:
    """Stop what `up` started; the caches stay."""
    if not layout.run.exists():
        say("nothing to stop")
        return
    with exclusive(layout.lock):
        stopped = [registry.stop(layout), engine.stop(layout)]
    say("stopped" if any(stopped) else "nothing to stop")


def _status(_: argparse.Namespace, layout: Layout) -> None:
    """Print what runs and which bases are there, as JSON."""
    found = engine.find(layout)
    images = registry.find(layout)
    report: dict[str, object] = {
        "engine": found and {"version": found.version, "own": found.own},
        "registry": images and images.prefix,
        "bases": None,
        "daemons": {name: daemon.pid for name, daemon in State(layout.state).read().items()},
        "cache": str(layout.cache),
        "logs": str(layout.run / "log"),
    }
    if images:
        builder = bases.Builder(layout, images)
        report["bases"] = {
            base.name: {"current": builder.current(base), "tags": builder.digests(base)}
            for base in bases.read_table().values()
        }
    print(json.dumps(report, indent=2))


def _env(_: argparse.Namespace, layout: Layout) -> None:
    """Print the lines to evaluate."""
    sys.stdout.write(environment.script(layout))


def _parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    parser = argparse.ArgumentParser(
        prog="python3 -m scripts.stack",
        description="A Docker engine, a registry and base images for developing buildmatrix.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="install and start what is missing, reuse the rest")
    up.add_argument("--engine-only", action="store_true", help="no registry, no base images")
    up.add_argument("--no-bases", action="store_true", help="engine and registry only")
    up.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this base (repeatable)"
    )
    up.add_argument(
        "--also", action="append", default=[], metavar="NAME", help="an optional base, too"
    )
    up.set_defaults(command=_up)
    down = commands.add_parser("down", help="stop what `up` started, keep the caches")
    down.set_defaults(command=_down)
    status = commands.add_parser("status", help="say what runs, as JSON")
    status.set_defaults(command=_status)
    env = commands.add_parser("env", help='print shell lines for eval "$(...)"')
    env.set_defaults(command=_env)
    return parser


def main() -> int:
    """Run one command; an error is one message and one exit code."""
    arguments = _parser().parse_args()
    try:
        arguments.command(arguments, Layout.of_environment())
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
