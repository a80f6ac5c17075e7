"""A diagnosis in Prometheus' text format; docs/contract.md has the names, which are stable.

Source: Prometheus documentation, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from buildmatrix.reports.doctor.model import Diagnosis, HostDevices

_Sample = tuple[Mapping[str, str], float]


def render(diagnosis: Diagnosis) -> str:
    """All metrics; what has several samples with the same labels is counted."""
    checks = diagnosis.node or ()
    lines = Counter((line.subject, line.state) for line in diagnosis.checks)
    parts = [
        _family(
            "info", "What was looked at, and by what.",
            [({"host": diagnosis.host, "kernel": diagnosis.kernel,
               "version": diagnosis.tool.version}, 1)],
        ),
        _family(
            "lines", "Lines of the table of `doctor`, by subject and state.",
            [({"subject": subject, "state": state}, n) for (subject, state), n in lines.items()],
        ),
        _family(
            "devices", "Nodes of devices, by backend.",
            [({"backend": item.backend}, len(item.nodes)) for item in _devices(diagnosis)],
        ),
        _family(
            "check", "1 for the state that a check of this machine is in.",
            [({"check": check.id, "backend": check.backend, "state": check.state}, 1)
             for check in checks],
        ),
        _family(
            "measure", "What a check measured, in its unit.",
            _once(({"check": check.id, "place": item.place, "unit": check.unit}, item.number)
                  for check in checks for item in check.measures
                  if item.number is not None),
        ),
        _family(
            "violations", "Measures that are out of their bounds, by check.",
            [({"check": check.id, "backend": check.backend},
              sum(not item.holds for item in check.measures)) for check in checks],
        ),
    ]  # fmt: skip
    if (process := diagnosis.process) is not None:
        libraries = Counter(
            (item.vendor, item.origin, str(item.deleted).lower()) for item in process.libraries
        )
        parts.append(
            _family(
                "process_libraries", "Libraries of vendors that the process has mapped.",
                [({"pid": str(process.pid), "vendor": vendor, "origin": origin,
                   "deleted": deleted}, n)
                 for (vendor, origin, deleted), n in libraries.items()],
            )
        )  # fmt: skip
    return "".join(parts)


def _devices(diagnosis: Diagnosis) -> Iterable[HostDevices]:
    """Devices, of each backend the first entry: a catalogue may describe one in several ways."""
    return {item.backend: item for item in reversed(diagnosis.devices)}.values()


def _once(samples: Iterable[_Sample]) -> list[_Sample]:
    """The first of samples with equal labels: a file may have said two things."""
    first: dict[tuple[tuple[str, str], ...], _Sample] = {}
    for labels, value in samples:
        first.setdefault(tuple(labels.items()), (labels, value))
    return list(first.values())


def _family(name: str, text: str, samples: Iterable[_Sample]) -> str:
    name = f"buildmatrix_doctor_{name}"
    rows = []
    for labels, value in samples:
        inner = ",".join(f'{key}="{_escaped(content)}"' for key, content in labels.items())
        number = int(value) if value == int(value) else value
        rows.append(f"{name}{{{inner}}} {number}\n")
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n{''.join(rows)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
