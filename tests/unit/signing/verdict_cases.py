"""A verdict that every demand of the tests accepts."""

from __future__ import annotations

from buildmatrix.reports.run import ReportTool
from buildmatrix.signing.verdict import JudgedBy, JudgedTarget, TargetVerdict

ALL = ("lock", "build", "scan", "smoke")
GOOD = TargetVerdict(
    tool=ReportTool(version="0.1", catalogue="2026-11-01"),
    judged="2026-11-02T03:04:05Z",
    target=JudgedTarget(
        id="rocm6.4-py311-server",
        backend="rocm",
        runtime="6.4",
        python="3.11",
        variant="server",
        platform="linux/amd64",
    ),
    lock="sha256:10c4",
    gates=dict.fromkeys(ALL, "passed"),
    required=ALL,
    rules=JudgedBy(codes=("BM301",), sources="0", fail_on="error", strict=False),
)
