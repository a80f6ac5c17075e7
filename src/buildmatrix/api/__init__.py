"""The Python API: `audit`, `scan`, `why`, `diff`, `fleet_scan`, `fleet_audit` as functions.

In: sources and options as plain values, and a `Workspace` with the settings of this machine.
Out: a `CommandResult`: the document as data, and the exit code.
`import buildmatrix` has all of these names; the command line calls the same functions.
"""

from buildmatrix.api.fleets import fleet_audit, fleet_scan
from buildmatrix.api.judging import audit, scan
from buildmatrix.api.questions import diff, drift, why
from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.commands.workspace import CommandResult, Workspace

__all__ = [
    "BuildmatrixError",
    "CommandResult",
    "Workspace",
    "audit",
    "diff",
    "drift",
    "fleet_audit",
    "fleet_scan",
    "scan",
    "why",
]
