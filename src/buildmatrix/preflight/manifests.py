"""Plan of a pod, and its manifests for `kubectl create -f`: a Job per target and node class."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeAlias

import yaml
from msgspec import Struct, field

from buildmatrix import __version__
from buildmatrix.base.errors import UsageError
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.matrix.model import NodeClass, Rung, Target

# Plans: the commands that the rungs would run here, in order.
#
# A rung is a function that runs commands and judges their output. So that a cluster needs no second
# set of rules, each rung is called twice: in advance, with a `Run` that only records the commands,
# and with the log of a pod, with a `Run` that answers from it. Commands that depend on an earlier
# answer cannot be known in advance, and are undecided on a cluster.


#: Placeholder in a plan for the mark of a run.
MARK = "@@mark@@"
#: Rungs that a pod can run: `static` needs no machine.
CLUSTER_RUNGS: Collection[Rung] = (
    "import", "device", "compute", "collective", "batch", "memory", "cold-start",
)  # fmt: skip
#: Commands of one rung; a rung that repeats endlessly stops here.
_MOST = 500


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a rung, with its time limit in seconds."""

    rung: Rung
    command: tuple[str, ...]
    seconds: float

    @property
    def key(self) -> str:
        """Hash of the command: a log with another one belongs to another plan."""
        text = json.dumps([self.rung, *self.command])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class UnansweredError(Exception):
    """A log lacks the end of a command; `output` is the available part."""

    def __init__(self, output: str = "", mark: str = "", *, is_planned: bool = True) -> None:
        super().__init__("the log does not say how a command ended")
        self.output, self.mark, self.is_planned = output, mark, is_planned


class Answer(Struct, frozen=True):
    """Output of one command in a log; `exit_code` is None if its end is missing."""

    lines: tuple[str, ...] = ()
    noise: str = ""
    exit_code: int | None = None
    timed_out: bool = False
    seconds: float | None = None


def plan_steps(rung: Rung, climb: Callable[[Run], object]) -> tuple[Step, ...]:
    """Return the commands that a rung runs without waiting for an answer."""
    written: list[Step] = []

    def run(command: Sequence[str], timeout_s: float) -> RunResult:
        if len(written) < _MOST:
            written.append(Step(rung, remove_mark(command)[0], timeout_s))
        return RunResult(0, "", timed_out=False)

    climb(run)
    return tuple(written)


class Replay(Struct):
    """Answers commands from a log: each once, equal commands in order."""

    rung: Rung
    answers: Mapping[str, Sequence[Answer]]
    _used: dict[str, int] = field(default_factory=dict)

    def __call__(self, command: Sequence[str], timeout_s: float) -> RunResult:  # noqa: ARG002
        """Answer like `engines.model.Run`. Raises `UnansweredError`."""
        plain, mark = remove_mark(command)
        key = Step(self.rung, plain, 0).key
        number = self._used.get(key, 0)
        self._used[key] = number + 1
        answers = self.answers.get(key, ())
        if number >= len(answers):
            raise UnansweredError(is_planned=False)
        answer = answers[number]
        output = "\n".join([*(mark + line for line in answer.lines), answer.noise])
        if answer.exit_code is None:
            raise UnansweredError(output, mark)
        return RunResult(answer.exit_code, output, answer.timed_out, answer.seconds)


def remove_mark(command: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return a command with `MARK` instead of its own mark, and that mark; see `make_call`."""
    try:
        options = json.loads(command[-1])
        mark = options["mark"]
    except (ValueError, TypeError, KeyError, IndexError):
        return tuple(command), ""
    text = json.dumps({**options, "mark": MARK}, separators=(",", ":"))
    return (*command[:-1], text), str(mark)


# Manifests: a Job per target and node class.
#
# Documents are data until PyYAML writes them, so that a name in a specification can only become
# text. Names and values that Kubernetes would refuse are rejected here first.
#
# Source: https://kubernetes.io/docs/reference/kubernetes-api/ (Job, ConfigMap, pod security
# standard "restricted"), https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/,
# and https://jobset.sigs.k8s.io/docs/ (v1alpha2).


Document: TypeAlias = dict[str, Any]

LOG_SCHEMA = "buildmatrix/preflight-log/1"
#: Memory of a pod, as of a local container (`engines.docker_containers`).
_MEMORY = "8Gi"
#: Seconds for a node to pull the image, beside those of the commands.
_FETCHING = 1800
#: Longest word of a command in the plan itself, in characters; longer ones are files.
_LONGEST_WORD = 200
#: Size limit of a ConfigMap (1 MiB with its name).
_LARGEST = 1_000_000
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"(?=.{1,253}/)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/"
_KEY, _VALUE = re.compile(rf"(?:{_PREFIX})?{_PART}"), re.compile(rf"(?:{_PART})?")
_TAINT = re.compile(r"([^=:]+)(?:=([^:]*))?(?::(\w+))?")


class ManifestRun(Struct, frozen=True):
    """One image to run on the machines of a node class."""

    target: Target
    #: Includes the digest.
    image: str
    node_class: NodeClass
    level: str
    steps: tuple[Step, ...]
    #: Resources, with the number that a pod requests.
    resources: Mapping[str, int]
    #: Machines of the class that run it, in one pod each.
    nodes: int = 1
    #: Repetitions of timed commands.
    repeat: int = 5

    @property
    def name(self) -> str:
        """A valid and unique name in Kubernetes."""
        # Pods of a JobSet have longer names, of which a host name takes 63 characters:
        # `-all-nodes-0-0`.
        return f"preflight-{self._words[:30].strip('-')}-{self._digest}"

    @property
    def file(self) -> str:
        """File name."""
        return f"{self._words[:150]}-{self._digest}.yaml"

    @property
    def _words(self) -> str:
        words = f"{self.target.id}-{self.node_class.name}".lower()
        return re.sub("[^a-z0-9]+", "-", words).strip("-")

    @property
    def _digest(self) -> str:
        parts: list[object] = [self.target.id, self.image, self.node_class.name, self.level]
        parts += [self.nodes, self.repeat]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


class _Dumper(yaml.SafeDumper):
    """Dumper that writes texts of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Repeat equal labels: anchors are for programs."""
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def format_manifest(run: ManifestRun) -> str:
    """Return the documents of one run, as one YAML file. Raises `UsageError`."""
    dumped: str = yaml.dump_all(
        _make_documents(run), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=False
    )
    return f"# Written by buildmatrix {__version__}: kubectl create -f this file\n{dumped}"


def _make_documents(run: ManifestRun) -> Iterator[Document]:
    across = tuple(step for step in run.steps if step.rung == "collective")
    yield _make_config_map(run, run.name, run.steps, 1)
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": run.name, "labels": _make_labels(run)},
        "spec": _make_job(run, run.name, run.steps),
    }
    if run.nodes > 1 and across:
        name = f"{run.name}-all"
        yield _make_config_map(run, name, across, run.nodes)
        yield _make_job_set(run, name, across)


def _make_job_set(run: ManifestRun, name: str, steps: Sequence[Step]) -> Document:
    """Return a JobSet of all machines, each with its rank and the address of the first."""
    spec = _make_job(run, name, steps)
    # They wait for each other before they start (`probes/pod.py`).
    spec["activeDeadlineSeconds"] += _FETCHING
    first = f"{name}-nodes-0-0.{name}"
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    ranks = [
        {"name": "BUILDMATRIX_FIRST", "value": first},
        {"name": "BUILDMATRIX_NODES", "value": str(run.nodes)},
        _make_downward_variable("BUILDMATRIX_RANK", index),
    ]
    spec["template"]["spec"]["containers"][0]["env"] += ranks
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": _make_labels(run)},
        "spec": {
            "network": {"enableDNSHostnames": True},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": "nodes", "replicas": 1, "template": {"spec": spec}}],
        },
    }


def _make_config_map(run: ManifestRun, name: str, steps: Sequence[Step], nodes: int) -> Document:
    """Return the plan, and the files named in it: the unchanged probes."""
    probe = files("buildmatrix.preflight.probes").joinpath("pod.py").read_text()
    data = {"pod.py": probe}
    planned = []
    for step in steps:
        words: list[object] = [*step.command]
        for at, word in enumerate(step.command):
            if len(word) > _LONGEST_WORD:
                file = f"{hashlib.sha256(word.encode()).hexdigest()[:12]}.txt"
                data[file] = word
                words[at] = {"file": file}
        planned.append(
            {"rung": step.rung, "key": step.key, "seconds": step.seconds, "command": words}
        )
    # In the first line of a log, beside its schema.
    about = {
        "version": __version__,
        "target": run.target.id,
        "backend": run.target.backend,
        "image": run.image,
        "digest": run.image.rpartition("@")[2],
        "node_class": run.node_class.name,
        "level": run.level,
        "repeat": run.repeat,
        "nodes": nodes,
    }
    plan = {"schema": LOG_SCHEMA, "about": [*about], **about, "mark": MARK, "steps": planned}
    data["plan.json"] = json.dumps(plan, indent=1)
    size = sum(len(value.encode()) for value in data.values())
    if size > _LARGEST:
        raise UsageError(
            f"{run.target.id}: the commands of its rungs take {size} bytes, and a ConfigMap holds "
            f"{_LARGEST}; run fewer with --level"
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": _make_labels(run)},
        "immutable": True,
        "data": data,
    }


def _make_job(run: ManifestRun, name: str, steps: Sequence[Step]) -> Document:
    deadline = _FETCHING + math.ceil(sum(step.seconds for step in steps))
    spec: Document = {
        "completions": run.nodes,
        "parallelism": run.nodes,
        "activeDeadlineSeconds": deadline,
        "ttlSecondsAfterFinished": 7 * 24 * 3600,
    }
    if run.nodes == 1:
        spec["backoffLimit"] = 0
    else:
        # One failing machine must not end the pods of the others.
        spec |= {"completionMode": "Indexed", "backoffLimitPerIndex": 0}
    pod = _make_pod(run, name)
    spec["template"] = {
        "metadata": {"labels": {**_make_labels(run), _RUN_LABEL: name}},
        "spec": pod,
    }
    return spec


#: Label that keeps the pods of one Job apart.
_RUN_LABEL = "buildmatrix.dev/run"


def _make_pod(run: ManifestRun, name: str) -> Document:
    user = run.target.user.uid
    amounts = {**{key: str(count) for key, count in run.resources.items()}, "memory": _MEMORY}
    amounts["ephemeral-storage"] = "8Gi"
    pod: Document = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "preflight",
                "image": run.image,
                "command": ["python", "/buildmatrix/pod.py", "/buildmatrix"],
                "env": [
                    {"name": "HOME", "value": "/tmp"},  # noqa: S108 - inside
                    {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
                    _make_downward_variable("BUILDMATRIX_NODE", "spec.nodeName"),
                    _make_downward_variable("BUILDMATRIX_POD", "metadata.name"),
                ],
                "resources": {"limits": amounts, "requests": {**amounts, "cpu": "1"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "plan", "mountPath": "/buildmatrix", "readOnly": True},
                    {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
                    {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
                ],
            }
        ],
        "volumes": [
            {"name": "plan", "configMap": {"name": name}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ],
    }
    labels, tolerations = run.node_class.labels, list(_make_tolerations(run.node_class))
    if labels:
        pod["nodeSelector"] = {
            _check_form(_KEY, key, run, "label"): _check_form(_VALUE, value, run, f"value of {key}")
            for key, value in labels.items()
        }
    if tolerations:
        pod["tolerations"] = tolerations
    if run.nodes > 1:
        apart = {
            "labelSelector": {"matchLabels": {_RUN_LABEL: name}},
            "topologyKey": "kubernetes.io/hostname",
        }
        pod["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        }
    for resource in run.resources:
        _check_form(_KEY, resource, run, "resource")
    return pod


def _make_tolerations(node: NodeClass) -> Iterator[Document]:
    for taint in node.tolerations:
        match = _TAINT.fullmatch(taint)
        if match is None or not _KEY.fullmatch(match[1]) or not _VALUE.fullmatch(match[2] or ""):
            raise UsageError(f"node class {node.name}: {taint!r} is not a Kubernetes taint")
        key, value, effect = match.groups()
        toleration = {"key": key, "operator": "Exists" if value is None else "Equal"}
        yield (
            toleration
            | ({} if value is None else {"value": value})
            | ({"effect": effect} if effect else {})
        )


def _make_downward_variable(name: str, path: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _make_labels(run: ManifestRun) -> Document:
    return {
        "app.kubernetes.io/name": "buildmatrix-preflight",
        "app.kubernetes.io/managed-by": "buildmatrix",
        "buildmatrix.dev/target": _make_label_value(run.target.id),
        "buildmatrix.dev/node-class": _make_label_value(run.node_class.name),
    }


def _make_label_value(text: str) -> str:
    """Convert a text to a label value, with `-` for invalid characters."""
    return re.sub("[^A-Za-z0-9._-]+", "-", text)[:63].strip("-._")


def _check_form(form: re.Pattern[str], text: str, run: ManifestRun, what: str) -> str:
    if not form.fullmatch(text):
        raise UsageError(
            f"node class {run.node_class.name}: {text!r} is not a {what} that Kubernetes accepts"
        )
    return text
