"""Shell completion of targets, backends, rules, formats and SOURCE; it never fails.

A completer runs on each press of Tab: it reads the specification, but no catalogue and no network,
and answers nothing on any error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click
from click.shell_completion import CompletionItem

#: Set by the script that a shell evaluates.
VARIABLE = "_BUILDMATRIX_COMPLETE"
#: Where a `--file` behind the command is kept for completers (`click.Context.meta`).
FILE = "buildmatrix.file"

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_BACKEND = re.compile(r'^(backend|title) = "(.+)"', re.MULTILINE)
#: Bytes at the beginning of a data file in which its backend is named.
_HEAD = 2000


def _quiet(names: Callable[[click.Context], Mapping[str, str]]) -> Completer:
    """A completer that offers `names` with their descriptions, and nothing where that fails."""

    @functools.wraps(names)
    def complete(
        ctx: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            offered = names(ctx)
        except Exception:  # What is wrong with a file is said by the command, and not by a shell.
            return []
        return _items(offered, incomplete)

    return complete


def _items(offered: Mapping[str, str], incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=text or None)
        for name, text in offered.items()
        if name.startswith(incomplete) and name.isprintable() and not re.search(r"[\s,]", name)
    ]


def _specification(ctx: click.Context) -> Path:
    root = ctx.find_root()
    return Path(ctx.meta.get(FILE) or root.params.get("file") or "buildmatrix.toml")


def _target_names(ctx: click.Context) -> dict[str, str]:
    from buildmatrix.matrix.load import load_spec

    return {target.id: target.backend for target in load_spec(_specification(ctx)).targets}


def _tables(ctx: click.Context, name: str) -> Iterable[str]:
    """Names of the tables below `name` in the specification."""
    import tomllib

    with _specification(ctx).open("rb") as file:
        return tuple(tomllib.load(file).get(name, {}))


@_quiet
def targets(ctx: click.Context) -> Mapping[str, str]:
    """Identifiers of targets."""
    return _target_names(ctx)


@_quiet
def selections(ctx: click.Context) -> Mapping[str, str]:
    """Identifiers, and those that are left out."""
    names = _target_names(ctx)
    return names | {f"!{name}": "" for name in names}


@_quiet
def subsets(ctx: click.Context) -> Mapping[str, str]:
    """Subsets of the specification."""
    return dict.fromkeys(_tables(ctx, "subset"), "")


@_quiet
def node_classes(ctx: click.Context) -> Mapping[str, str]:
    """Node classes of the specification."""
    return dict.fromkeys(_tables(ctx, "node-class"), "")


@_quiet
def backends(ctx: click.Context) -> Mapping[str, str]:
    """Backends of the built-in catalogue, and those that the specification names."""
    from importlib import resources

    names: dict[str, str] = {}
    for entry in (resources.files("buildmatrix.catalogue") / "data").iterdir():
        if entry.name.count(".") == 1:
            with entry.open(encoding="utf-8") as file:
                said = dict(_BACKEND.findall(file.read(_HEAD)))
            names[said["backend"]] = said.get("title", "")
    if _specification(ctx).is_file():
        names.update((name, names.get(name, "")) for name in _tables(ctx, "backend"))
    return dict(sorted(names.items()))


@_quiet
def rules(_ctx: click.Context) -> Mapping[str, str]:
    """Codes of rules."""
    from buildmatrix.judge.registry import RULES

    return {rule.code: rule.name for rule in RULES}


@_quiet
def libraries(ctx: click.Context) -> Mapping[str, str]:
    """Return the libraries that `why` knows, whatever the SOURCE."""
    names: list[CompletionItem] = backends(ctx, click.Argument(["library"]), "")
    return {item.value: item.help or "" for item in names}


def files(
    _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Paths, which the shell itself knows."""
    return [CompletionItem(incomplete, type="file")]


def sources(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Targets, where one begins so; files, also behind a prefix."""
    prefix, colon, path = incomplete.rpartition(":")
    if colon:
        # bash takes the part behind a colon for a word of its own; others need it whole.
        return _paths(f"{prefix}:", path)
    named = targets(ctx, parameter, incomplete) if incomplete else []
    return named or files(ctx, parameter, incomplete)


def _paths(prefix: str, path: str) -> list[CompletionItem]:
    folder, slash, name = path.rpartition("/")
    try:
        entries = sorted(Path(folder + slash or ".").iterdir())
    except OSError:
        return []
    names = {
        f"{prefix}{folder}{slash}{entry.name}{'/' if entry.is_dir() else ''}": ""
        for entry in entries
        if entry.name.startswith(name) and (name or not entry.name.startswith("."))
    }
    return _items(names, prefix + path)


def formats(choices: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Formats; a file behind `=`."""
    _, equals, path = incomplete.partition("=")
    if equals:
        return [CompletionItem(path, type="file")]
    return _items(dict.fromkeys(choices, ""), incomplete)


#: Option → what completes its value.
OF_OPTIONS: Mapping[str, Completer] = {
    "--select": selections,
    "--subset": subsets,
    "--backend": backends,
    "--catalogue": backends,
    "--node-class": node_classes,
}
