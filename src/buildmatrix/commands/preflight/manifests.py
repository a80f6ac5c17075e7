"""What `kubectl create -f` takes: a Job for each target and node class, and what its pod runs.

Documents are data until PyYAML writes them, so that no name of a specification becomes anything but
a text. Kubernetes refuses names and values that are not of its form, which is said here, before.

Source: https://kubernetes.io/docs/reference/kubernetes-api/ (Job, ConfigMap, pod security standard
"restricted"), https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/, and
https://jobset.sigs.k8s.io/docs/ (v1alpha2).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeAlias

import yaml

from buildmatrix import __version__
from buildmatrix.commands.preflight.plan import MARK, Step
from buildmatrix.errors import UsageError
from buildmatrix.spec.model import NodeClass, Target

Document: TypeAlias = dict[str, Any]

LOG_SCHEMA = "buildmatrix/preflight-log/1"
#: What the first line of a log says of the run, beside its schema.
ABOUT = (
    "version",
    "target",
    "backend",
    "image",
    "digest",
    "node_class",
    "level",
    "repeat",
    "nodes",
)
#: Memory of a pod, as of a container here (`engines.docker.containers`).
_MEMORY = "8Gi"
#: Seconds for a node to fetch the image, beside those of the commands.
_FETCHING = 1800
#: Characters of a word of a command that stays in the plan; longer ones are files.
_LONG = 200
#: Bytes of a ConfigMap (its limit is 1 MiB, with its name).
_LARGEST = 1_000_000
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"(?=.{1,253}/)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/"
_KEY, _VALUE = re.compile(rf"(?:{_PREFIX})?{_PART}"), re.compile(rf"(?:{_PART})?")
_TAINT = re.compile(r"([^=:]+)(?:=([^:]*))?(?::(\w+))?")


@dataclass(frozen=True, slots=True)
class Run:
    """One image that is run on the machines of a node class."""

    target: Target
    #: With its digest.
    image: str
    node_class: NodeClass
    level: str
    steps: tuple[Step, ...]
    #: Resource → how many of it a pod asks for.
    resources: Mapping[str, int]
    #: Machines of the class that run it, each one pod.
    nodes: int = 1
    #: How often what is timed is run.
    repeat: int = 5

    @property
    def name(self) -> str:
        """A name that Kubernetes takes, and another one for each of these runs."""
        # Pods of a JobSet have longer names, of which a host name takes 63 characters:
        # `-all-nodes-0-0`.
        return f"preflight-{self._words[:30].strip('-')}-{self._digest}"

    @property
    def file(self) -> str:
        """A name for its file."""
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
    """Shows texts of several lines as such."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Write the same labels again: an anchor would be for programs."""
        return True


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def text(run: Run) -> str:
    """The documents of one run, as one YAML file. Raises `UsageError`."""
    dumped: str = yaml.dump_all(
        _documents(run), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=False
    )
    return f"# Written by buildmatrix {__version__}: kubectl create -f this file\n{dumped}"


def _documents(run: Run) -> Iterator[Document]:
    across = tuple(step for step in run.steps if step.rung == "collective")
    yield _config(run, run.name, run.steps, 1)
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": run.name, "labels": _labels(run)},
        "spec": _job(run, run.name, run.steps),
    }
    if run.nodes > 1 and across:
        name = f"{run.name}-all"
        yield _config(run, name, across, run.nodes)
        yield _job_set(run, name, across)


def _job_set(run: Run, name: str, steps: Sequence[Step]) -> Document:
    """All machines at once, each with its rank and the address of the first."""
    spec = _job(run, name, steps)
    # They wait for each other before they begin (`probes/pod.py`).
    spec["activeDeadlineSeconds"] += _FETCHING
    first = f"{name}-nodes-0-0.{name}"
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    ranks = [
        {"name": "BUILDMATRIX_FIRST", "value": first},
        {"name": "BUILDMATRIX_NODES", "value": str(run.nodes)},
        _downward("BUILDMATRIX_RANK", index),
    ]
    spec["template"]["spec"]["containers"][0]["env"] += ranks
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": _labels(run)},
        "spec": {
            "network": {"enableDNSHostnames": True},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": "nodes", "replicas": 1, "template": {"spec": spec}}],
        },
    }


def _config(run: Run, name: str, steps: Sequence[Step], nodes: int) -> Document:
    """The plan, and the files that it names: the probes as they are."""
    probe = files("buildmatrix.commands.preflight.probes").joinpath("pod.py").read_text()
    data = {"pod.py": probe}
    planned = []
    for step in steps:
        words: list[object] = []
        for word in step.command:
            if len(word) > _LONG:
                file = f"{hashlib.sha256(word.encode()).hexdigest()[:12]}.txt"
                data[file] = word
                words.append({"file": file})
            else:
                words.append(word)
        seconds = step.seconds
        planned.append({"rung": step.rung, "key": step.key, "seconds": seconds, "command": words})
    about = (
        __version__, run.target.id, run.target.backend, run.image,
        run.image.rpartition("@")[2], run.node_class.name, run.level, run.repeat, nodes,
    )  # fmt: skip
    plan = {
        "schema": LOG_SCHEMA,
        "about": ABOUT,
        **dict(zip(ABOUT, about, strict=True)),
        "mark": MARK,
        "steps": planned,
    }
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
        "metadata": {"name": name, "labels": _labels(run)},
        "immutable": True,
        "data": data,
    }


def _job(run: Run, name: str, steps: Sequence[Step]) -> Document:
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
        # One machine that fails must not end the pods of the others.
        spec |= {"completionMode": "Indexed", "backoffLimitPerIndex": 0}
    pod = _pod(run, name)
    spec["template"] = {"metadata": {"labels": {**_labels(run), _OWN: name}}, "spec": pod}
    return spec


#: By which the pods of one Job keep away from each other.
_OWN = "buildmatrix.dev/run"


def _pod(run: Run, name: str) -> Document:
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
                    _downward("BUILDMATRIX_NODE", "spec.nodeName"),
                    _downward("BUILDMATRIX_POD", "metadata.name"),
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
    labels, tolerations = run.node_class.labels, list(_tolerations(run.node_class))
    if labels:
        pod["nodeSelector"] = {
            _formed(_KEY, key, run, "label"): _formed(_VALUE, value, run, f"value of {key}")
            for key, value in labels.items()
        }
    if tolerations:
        pod["tolerations"] = tolerations
    if run.nodes > 1:
        apart = {
            "labelSelector": {"matchLabels": {_OWN: name}},
            "topologyKey": "kubernetes.io/hostname",
        }
        pod["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        }
    for resource in run.resources:
        _formed(_KEY, resource, run, "resource")
    return pod


def _tolerations(node: NodeClass) -> Iterator[Document]:
    for taint in node.tolerations:
        match = _TAINT.fullmatch(taint)
        if match is None or not _KEY.fullmatch(match[1]) or not _VALUE.fullmatch(match[2] or ""):
            raise UsageError(f"node class {node.name}: {taint!r} is no taint that Kubernetes has")
        key, value, effect = match.groups()
        toleration = {"key": key, "operator": "Exists" if value is None else "Equal"}
        yield (
            toleration
            | ({} if value is None else {"value": value})
            | ({"effect": effect} if effect else {})
        )


def _downward(name: str, path: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _labels(run: Run) -> Document:
    return {
        "app.kubernetes.io/name": "buildmatrix-preflight",
        "app.kubernetes.io/managed-by": "buildmatrix",
        "buildmatrix.dev/target": _value(run.target.id),
        "buildmatrix.dev/node-class": _value(run.node_class.name),
    }


def _value(text: str) -> str:
    """A text as a value of a label: what is not of its form becomes `-`."""
    return re.sub("[^A-Za-z0-9._-]+", "-", text)[:63].strip("-._")


def _formed(form: re.Pattern[str], text: str, run: Run, what: str) -> str:
    if not form.fullmatch(text):
        raise UsageError(
            f"node class {run.node_class.name}: {text!r} is no {what} that Kubernetes takes"
        )
    return text
