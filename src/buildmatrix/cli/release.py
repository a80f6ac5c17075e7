"""`promote` and `verify`: tags of staged images, and their signed verdicts."""

from __future__ import annotations

import click

from buildmatrix.api import releases
from buildmatrix.api.releases import VerifyOptions
from buildmatrix.cli.options import take
from buildmatrix.cli.output import Output, writes
from buildmatrix.commands.options import PromoteOptions
from buildmatrix.reports.formats import PROMOTE, VERIFY


@click.command("promote")
@take(PromoteOptions, fail_on=writes(PROMOTE))
def promote_command(options: PromoteOptions, /, to: Output) -> int:
    """Set all tags of the images that `build --stage` pushed, when every report is green.

    FILES are the reports (--format json) of all machines of a run. Nothing is set while one of
    them is not green, what one of them accepted until a day is over, or one of their images or of
    its verdicts is not in its registry any more. A run that was stopped says which tags it set; run
    it again to go on.
    """
    return to.write(releases.promote(options))


@click.command("verify")
@take(VerifyOptions, last=writes(VERIFY))
def verify_command(options: VerifyOptions, /, to: Output) -> int:
    """Answer whether an image may be admitted: registry:HOST/NAME[:TAG][@DIGEST], or its bare name.

    Its signed verdict is read, and no layer. 0: it is proved to be for the backend, all gates
    passed, and what was accepted still is. 1: it is not, and each reason is told. 3: the registry
    cannot be asked, so it is unknown.
    """
    return to.write(releases.verify(options))
