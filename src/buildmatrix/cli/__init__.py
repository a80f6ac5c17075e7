"""The command line: one module per command, with its options, its call and its output; no logic.

In: arguments, environment variables and settings.
Out: documents on standard output or in files, messages on standard error, and an exit code.
A command's module is imported only when that command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import click

from buildmatrix import __version__
from buildmatrix.base.errors import (
    EXIT_DEFECT,
    EXIT_INTERRUPTED,
    BuildmatrixError,
    UndecidedError,
    UsageError,
)
from buildmatrix.base.text import printable
from buildmatrix.cli import console
from buildmatrix.cli.completing import VARIABLE
from buildmatrix.cli.options import (
    GLOBAL_OPTIONS,
    CommandSettings,
    add_global_options,
    check_loudness,
    option,
    stack_options,
)

#: Command → one line for `--help` and for completion.
COMMANDS = {
    "init": "Write a first buildmatrix.toml from requirements or pyproject.toml.",
    "targets": "Print the matrix.",
    "lock": "Resolve one pylock.<id>.toml per target, with hashes.",
    "generate": "Write Dockerfiles and docker-bake.json.",
    "audit": "Show what locked wheels would bring in, before they are downloaded.",
    "build": "Run the whole pipeline: lock, build, scan, smoke, push.",
    "promote": "Set the tags of images that were staged, when every report is green.",
    "scan": "Read what lies in an image or a folder, and judge it.",
    "fleet": "Judge many images at once, or the locks of many repositories.",
    "why": "Show every chain from a requirement to a library.",
    "inspect": "Show what one binary, wheel, image or tree holds.",
    "explore": "Browse an image, a tree, a lock or a wheel in the terminal.",
    "diff": "Show what changed between two images, wheels, locks or reports.",
    "verify": "Check the signed verdict of an image in a registry.",
    "preflight": "Import, compute and warm up in images, up a ladder of rungs.",
    "smoke": "Run the smoke commands of a target that was built.",
    "node-classes": "Describe the machines of a cluster, and check node classes against them.",
    "doctor": "Show what this machine can do: engine, resolver, devices.",
    "cache-key": "Print the compile-cache key for a node class.",
    "rules": "List every rule, or print the page of one.",
    "report": "Render a saved report again, or merge several.",
    "schema": "Print the JSON schema of the specification or of a document.",
    "completion": "Print the script that completes commands in bash, zsh or fish.",
}

#: Command → module with its function, `<command>_command`, where the module has another name.
_MODULES = {
    "audit": "judging",
    "scan": "judging",
    "diff": "judging",
    "why": "judging",
    "fleet": "release",
    "report": "release",
    "init": "matrix",
    "targets": "matrix",
    "lock": "matrix",
    "generate": "matrix",
    "smoke": "build",
    "explore": "inspect",
    "promote": "release",
    "verify": "release",
    "preflight": "machines",
    "doctor": "machines",
    "node-classes": "machines",
    "cache-key": "machines",
    "rules": "reference",
    "schema": "reference",
    "completion": "reference",
}

#: Characters of the reason that an unexpected exception gives.
_LONGEST_REASON = 300


class _ReaderGone(Exception):
    """The reader of the output is gone; click would exit with 1."""


@contextmanager
def _watching_reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


def load_command(name: str) -> click.Command:
    """Import the module of a command; return the command without its global options."""
    module = importlib.import_module(f"buildmatrix.cli.{_MODULES.get(name, name)}")
    command = getattr(module, f"{name.replace('-', '_')}_command")
    assert isinstance(command, click.Command)
    command.short_help = COMMANDS[name]
    return command


class LazyGroup(click.Group):
    """A group whose commands live in modules of their own and are imported when they are called."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments; `--help` prints here."""
        with _watching_reader():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _watching_reader():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        return add_global_options(load_command(cmd_name)) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names. Raises `click.UsageError` with a hint."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from buildmatrix.matrix.document import did_you_mean

            hint = did_you_mean(args[0], COMMANDS, "commands")
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


_DEFAULTS: dict[str, dict[str, Any]] = {
    "--file": {"default": Path("buildmatrix.toml"), "show_default": True}
}
_before_the_command = stack_options(
    *(
        option(*declarations, **attributes, **_DEFAULTS.get(declarations[-1], {}))
        for declarations, attributes in GLOBAL_OPTIONS
    )
)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="buildmatrix")
@_before_the_command
@click.pass_context
def group(
    ctx: click.Context,
    file: Path,
    quiet: bool,
    verbose: bool,
    log_file: Path | None,
    no_progress: bool,
) -> None:
    """Prove that a container image contains only what its accelerator backend can use."""
    try:
        Path.cwd()
    except OSError as error:
        raise UsageError(
            "the folder that this runs in was deleted; change to one that exists"
        ) from error
    ctx.obj = check_loudness(CommandSettings(file, quiet, verbose, no_progress, log_file))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the code that docs/contract.md promises."""
    console.prepare_streams()
    # Facts are many objects and hardly any cycles: to look for those took a tenth of an audit.
    gc.set_threshold(50_000, 20, 100)
    # A CI system that gives up sends SIGTERM: builds end and the journal is kept, as for Ctrl-C. A
    # terminal that is closed sends SIGHUP.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    if VARIABLE in os.environ:
        _complete()
    try:
        code = group.main(args=arguments, prog_name="buildmatrix", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        text = StringIO()
        error.show(text)
        console.complain(text.getvalue().rstrip("\n"))
        code = error.exit_code
    except BuildmatrixError as error:
        console.complain(f"buildmatrix: {error.message}")
        if error.log is not None:
            console.complain(f"log: {error.log}")
        code = error.exit_code
    except OSError as error:
        # What this machine refuses anywhere: a full disk, a name that is too long.
        where = f"{error.filename}: " if error.filename is not None else ""
        console.complain(printable(f"buildmatrix: {where}{error.strerror or error}"))
        _show_traceback(error, arguments)
        code = UndecidedError.exit_code
    except (click.Abort, KeyboardInterrupt):
        console.complain("buildmatrix: interrupted")
        code = EXIT_INTERRUPTED
    except _ReaderGone:
        # The reader is gone (`| head`).
        code = 0
    except Exception as error:
        # 1 would say that there are findings: a crash says nothing about the images.
        _explain_defect(error, arguments)
        code = EXIT_DEFECT
    _let_go()
    sys.exit(code or 0)


def _complete() -> NoReturn:
    """Answer a shell that completes a line. Whatever goes wrong, nothing is printed into it."""
    with (
        suppress(Exception, SystemExit, KeyboardInterrupt),
        Path(os.devnull).open("w") as nowhere,
        redirect_stderr(nowhere),
    ):
        group.main(args=[], prog_name="buildmatrix", standalone_mode=False)
    _let_go()
    sys.exit(0)


def _show_traceback(error: Exception, arguments: Sequence[str] | None) -> bool:
    """Print where an exception comes from, if that was asked for with `--verbose`."""
    given = sys.argv[1:] if arguments is None else arguments
    wanted = "BUILDMATRIX_VERBOSE" in os.environ or "-v" in given or "--verbose" in given
    if wanted:
        console.complain("".join(traceback.format_exception(error)).rstrip())
    return wanted


def _explain_defect(error: Exception, arguments: Sequence[str] | None) -> None:
    """One sentence about an unexpected exception; the traceback with `--verbose`."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    reason = printable(str(error))[:_LONGEST_REASON]
    is_verbose = _show_traceback(error, arguments)
    console.complain(
        f"buildmatrix: internal error, {type(error).__name__}{where}: {reason}; "
        + ("please report it" if is_verbose else "run it again with -v, and please report that")
    )


def _let_go() -> None:
    """Drop unwritten output: Python would try again at exit, and end with 120 or noise."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
