"""The patience of tests with servers on loopback."""

from __future__ import annotations

from buildmatrix.http.patience import Patience

#: Everything that a test may wait for takes a tenth of a second, and not half a minute.
HASTY = Patience(
    tries=3,
    pause=0.01,
    longest_pause=0.5,
    connect=2.0,
    silence=2.0,
    storing=2.0,
    request=5.0,
    slowest=1 << 20,
)
