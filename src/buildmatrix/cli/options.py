"""Shared options: settings, environment variables, selection and sharding of targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, Field, fields
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.cli import completing
from buildmatrix.cli.console import complain
from buildmatrix.engines import AUTO, NAMES
from buildmatrix.reports import formats

if TYPE_CHECKING:
    from buildmatrix.commands.workspace import Level, Workspace
    from buildmatrix.matrix.model import Spec, Target


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Formats of all commands together: `BUILDMATRIX_FORMAT` may hold any of them. `github` is the one
#: that is not a format of a report: a matrix.
ALL_FORMATS = frozenset({"github", *(item.name for table in formats.ALL for item in table)})


class CommandSettings(Struct, frozen=True):
    """The options that stand before the command or after it."""

    file: Path = Path("buildmatrix.toml")
    quiet: bool = False
    verbose: bool = False
    no_progress: bool = False
    log_file: Path | None = None


class _RenamedOption(click.Option):
    """An option that is still taken by its former name, which no help shows."""

    def __init__(self, *arguments: Any, former: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """See `click.Parameter.add_to_parser`."""
        shown = self.opts
        self.opts = [*shown, self._former]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def option(
    *declarations: str, variable: str | None = None, former: str | None = None, **attributes: Any
) -> Decorator:
    """A click option whose environment variable is `BUILDMATRIX_<FLAG>`.

    `variable` is another one, where the flag means something else in other commands: one
    environment serves all of them. `former` is a name that the option had.
    """
    if former is not None:
        attributes |= {"cls": _RenamedOption, "former": former}
    flag = next(name for name in declarations if name.startswith("--"))
    flag = flag.split("/")[0].removeprefix("--")
    variable = variable or "BUILDMATRIX_" + flag.upper().replace("-", "_")
    attributes.setdefault("shell_complete", completing.OF_OPTIONS.get(f"--{flag}"))
    return click.option(*declarations, envvar=variable, show_envvar=True, **attributes)


class _FormatOption(click.Option):
    """`--format`, whose variable one environment sets for commands with different formats."""

    def __init__(self, *arguments: Any, formats: Sequence[str], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.formats = frozenset(formats)

    def shell_complete(self, _ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See `click.Parameter.shell_complete`."""
        return completing.formats(sorted(self.formats), incomplete)

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the variable's value for this command; None for nothing.

        Formats that only other commands have are passed over, and so is a file for one where the
        command writes a single format. What no command has stays in it, and is refused.
        """
        value = super().resolve_envvar_value(ctx)
        kept = [text for text in (value or "").split() if not self._is_meant_for_others(text)]
        return " ".join(kept) or None

    def _is_meant_for_others(self, text: str) -> bool:
        name, equals, _ = text.partition("=")
        if name in self.formats:
            return bool(equals) and not self.multiple
        return name in ALL_FORMATS


def format_option(name: str, choices: Sequence[str], text: str) -> Decorator:
    """`--format` of a command that writes one of the formats `choices`, the first by default.

    `name` is that of the command's parameter, `text` its help.
    """
    return option(
        "--format",
        name,
        cls=_FormatOption,
        formats=choices,
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help=text,
    )


def formats_option(choices: Sequence[str]) -> Decorator:
    """`--format` of a command that writes several of the formats `choices`: parameter `formats`."""
    return option(
        "--format",
        "formats",
        cls=_FormatOption,
        formats=choices,
        multiple=True,
        metavar="FORMAT[=PATH]",
        help=f"One of {', '.join(choices)}; with PATH as often as needed.  [default: {choices[0]}]",
    )


def stack_options(*decorators: Decorator) -> Decorator:
    """Several decorators as one, the first outermost."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


# Options of a command, made of the fields of a dataclass (`commands.options`)


def take(kind: type[Any], **placed: Decorator) -> Decorator:
    """Give a command the options of `kind`; its first parameter is a `kind` made of their values.

    `placed` are options of the command line alone, by the field that they stand before, or `last`.
    """
    hints = get_type_hints(kind)
    names = {item.name: item for item in fields(kind)}
    inherited = [list(getattr(base, "__dataclass_fields__", ())) for base in kind.__bases__]
    own = [name for name in names if name in kind.__annotations__]
    order = dict.fromkeys([*inherited[0], *own, *chain.from_iterable(inherited[1:])])
    made: list[Decorator] = []
    for name in order:
        made += [placed.pop(name)] if name in placed else []
        made += [_parameter(names[name], hints[name])] if "flags" in names[name].metadata else []
    made += placed.values()
    negated = [name for name in order if names[name].default is True]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**values: Any) -> Any:
            values |= {name: not values[name] for name in negated}
            machine = {name: values.pop(name) for name in _OF_MACHINE & values.keys() - order}
            here = workspace(click.get_current_context().obj or CommandSettings(), **machine)
            taken = {name: values.pop(name) for name in order if name in values}
            return command(kind(workspace=here, **taken), **values)

        return stack_options(*made)(run)

    return decorate


#: Options of which a `Workspace` is made, where they are no field: a fleet has a `store` itself.
_OF_MACHINE = frozenset({"engine", "no_cache", "offline", "store"})


def _parameter(item: Field[Any], hint: Any) -> Decorator:
    """The option or argument of a field."""
    about = dict(item.metadata)
    flags, text = about.pop("flags"), about.pop("help")
    least, most = about.pop("least", None), about.pop("most", None)
    choices = about.pop("choices", None)
    if completes := about.pop("completes", None):
        about["shell_complete"] = getattr(completing, completes)
    if get_origin(hint) in (Union, UnionType):
        hint = get_args(hint)[0]
    if get_origin(hint) is Sequence:
        hint = get_args(hint)[0]
        about["multiple"] = True
    if hint is bool:
        about["is_flag"] = True
    elif hint is Path:
        about["type"] = click.Path(path_type=Path)
    elif choices or get_origin(hint) is Literal:
        about["type"] = click.Choice(choices or get_args(hint))
    elif hint in (int, float):
        about["type"] = (click.IntRange if hint is int else click.FloatRange)(least, most)
    if flags is None:
        about.pop("multiple", None)
        return click.argument(item.name, **about)
    if item.default is not MISSING and item.default is not True:
        about["default"] = item.default
    flags = flags or ("--" + item.name.replace("_", "-"),)
    return option(*flags, item.name, help=text, **about)


def output_option(text: str = "File; - is stdout.") -> Decorator:
    """`--output` of a command."""
    return option("-o", "--output", type=click.Path(path_type=Path), help=text)


# Images, wheels and engines


cache_option = option(
    "--no-cache", is_flag=True, help="Ignore the cache and read everything again."
)

store_option = option(
    "--store",
    default="",
    metavar="URL",
    help="Share facts with other machines: a folder, or the URL of an fsspec driver.",
)

wheels_offline_option = option(
    "--offline", is_flag=True, help="For `lock:` and similar sources: use caches only."
)

engine_option = option(
    "--engine",
    type=click.Choice(NAMES),
    default=AUTO,
    show_default=True,
    help="Who builds and has images: Docker, or buildmatrix itself. auto: Docker where it answers.",
)


#: Options that stand before the command or after it: declarations and attributes.
GLOBAL_OPTIONS: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...] = (
    (("-f", "--file"), {"type": click.Path(path_type=Path), "help": "The specification."}),
    (("-q", "--quiet"), {"is_flag": True, "help": "Only results and errors."}),
    (
        ("-v", "--verbose"),
        {"is_flag": True, "help": "Print steps, requests, cache hits and child processes."},
    ),
    (
        ("--log-file",),
        {
            "type": click.Path(path_type=Path, dir_okay=False),
            "help": "Append what -v prints to this file.",
        },
    ),
    (("--no-progress",), {"is_flag": True, "help": "Print plain lines instead of a live display."}),
)


def check_loudness(settings: CommandSettings) -> CommandSettings:
    """Raises `click.UsageError` for settings that contradict each other."""
    if settings.quiet and settings.verbose:
        raise click.UsageError("--quiet and --verbose are mutually exclusive; give one of them")
    return settings


def _override(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Put an option that was given after the command into the settings."""
    if ctx.resilient_parsing:
        # A shell asks what to complete: nothing has made settings.
        ctx.meta[completing.FILE] = (
            value if parameter.name == "file" and value else ctx.meta.get(completing.FILE)
        )
        return
    if value and parameter.name is not None:
        ctx.obj = check_loudness(replace(ctx.obj, **{parameter.name: value}))


def add_global_options(command: click.Command) -> click.Command:
    """`command`, which takes the options that stand before the command after it as well.

    While it runs, its progress is shown (`progress.command_progress`).
    """
    # Wherever its help is made first: click keeps the option that it makes then.
    command.context_settings.setdefault("help_option_names", ["-h", "--help"])
    own = {name for parameter in command.params for name in parameter.opts}
    is_done = "--no-progress" in own
    if command.callback is not None and not (is_done or isinstance(command, click.Group)):
        command.callback = _with_progress(command.callback)
    for declarations, attributes in GLOBAL_OPTIONS:
        if own.isdisjoint(declarations):
            # Without environment variables: these are what stands before the command.
            command.params.append(
                click.Option(declarations, expose_value=False, callback=_override, **attributes)
            )
    return command


def _logged(settings: CommandSettings) -> AbstractContextManager[None]:
    if not settings.verbose and settings.log_file is None:
        return nullcontext()
    from buildmatrix.cli.logs import logging_to

    return logging_to(settings.log_file, verbose=settings.verbose)


def _with_progress(callback: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(callback)
    def run(*arguments: Any, **others: Any) -> Any:
        from buildmatrix.cli.progress import command_progress

        context = click.get_current_context()
        if context.obj is None:  # Called without the group that has the settings.
            return callback(*arguments, **others)
        name = context.command_path.removeprefix(f"{context.find_root().command_path} ")
        with _logged(context.obj), command_progress(context.obj, name):
            return callback(*arguments, **others)

    return run


# The `Workspace` of a command line


class ConsoleLog(Struct, frozen=True):
    """Log of messages on standard error, as verbose as requested."""

    quiet: bool
    verbose: bool

    def __call__(self, level: Level, text: str) -> None:
        """Print it, or not."""
        if {"warning": True, "info": not self.quiet, "debug": self.verbose}[level]:
            complain(text)


def workspace(settings: CommandSettings, *, no_cache: bool = False, **machine: Any) -> Workspace:
    """The project and this machine, as the options say."""
    # These need the settings above.
    from buildmatrix.cli.progress import progress
    from buildmatrix.commands.workspace import Workspace

    return Workspace(
        settings.file,
        cache=not no_cache,
        progress=partial(progress, settings),
        log=ConsoleLog(settings.quiet, settings.verbose),
        **machine,
    )


def load(settings: CommandSettings) -> Spec:
    """The specification, checked against the backends that the catalogue knows."""
    return workspace(settings).load()


def load_targets(settings: CommandSettings, *globs: str) -> tuple[Spec, tuple[Target, ...]]:
    """The specification, and the targets that were selected."""
    from buildmatrix.matrix.matrix import select

    spec = load(settings)
    return spec, select(spec, globs, None)
