"""The JSON schemas of what commands write (`buildmatrix schema report|diff|...`)."""

from __future__ import annotations

from functools import partial

from buildmatrix.reports.diff import Comparison, Drifts
from buildmatrix.reports.doctor import Diagnosis, NodeClassCheck
from buildmatrix.reports.fleet import FleetResult
from buildmatrix.reports.fleet_documents import FleetDocument
from buildmatrix.reports.json_form import schema
from buildmatrix.reports.preflight import Preflight
from buildmatrix.reports.run import Report
from buildmatrix.reports.verify import Promotion, Verification

#: Of `audit`, `build` and `scan`; `diff`; `diff --targets`; `promote`; `verify`; `doctor`;
#: `node-classes check`; `preflight`; `fleet`, whole and by line.
report = partial(schema, Report, "A report of buildmatrix")
diff = partial(schema, Comparison, "A comparison of buildmatrix")
drift = partial(schema, Drifts, "Drift between the targets of buildmatrix")
promotion = partial(schema, Promotion, "A promotion of buildmatrix")
verification = partial(schema, Verification, "A verification of buildmatrix")
diagnosis = partial(schema, Diagnosis, "A diagnosis of buildmatrix")
node_classes = partial(schema, NodeClassCheck, "Node classes checked by buildmatrix")
preflight = partial(schema, Preflight, "A preflight of buildmatrix")
fleet = partial(schema, FleetDocument, "A fleet judged by buildmatrix")
fleet_result = partial(schema, FleetResult, "One image of a fleet judged by buildmatrix")
