"""`buildmatrix completion`."""

from __future__ import annotations

import click

from buildmatrix.cli.completing import VARIABLE
from buildmatrix.cli.console import say

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, /, shell: str) -> None:
    """Print the script by which SHELL completes commands, options, targets and files.

    For bash: `eval "$(buildmatrix completion bash)"` in ~/.bashrc; for zsh the same with zsh in
    ~/.zshrc, behind compinit; for fish: `buildmatrix completion fish | source` in
    ~/.config/fish/config.fish.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    completer = kind(ctx.find_root().command, {}, "buildmatrix", VARIABLE)
    # That of the base class: bash's own starts a bash to ask for its version.
    say(ShellComplete.source(completer))
