"""The Python API: what `audit`, `scan`, `why`, `diff` and `fleet` do, as typed functions.

`import buildmatrix` has all of these names; the command line calls the same functions.
"""

from buildmatrix.api.fleets import fleet_audit, fleet_scan
from buildmatrix.api.judging import audit, scan
from buildmatrix.api.questions import diff, drift, why
from buildmatrix.api.workspace import CommandResult, Workspace
from buildmatrix.base.errors import BuildmatrixError

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
