"""Lists of machines, read from files and written as `[node-class.NAME]` tables.

A file is the output of `kubectl get nodes -o json` (a List, or a single Node), or that of `doctor
--format json` on a host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import msgspec

from buildmatrix.base.errors import UsageError
from buildmatrix.base.text import count, listing, printable
from buildmatrix.base.threads import prepare_type
from buildmatrix.base.toml import loads, written, written_key
from buildmatrix.catalogue.drivers import product
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import product_words
from buildmatrix.commands.nodes import KubernetesNode, Machine, Node, NodeReader, SeenNodes, decode
from buildmatrix.facts.files import read_at_most
from buildmatrix.matrix import kinds
from buildmatrix.matrix.document import Kind, quoted
from buildmatrix.matrix.model import NodeClass, Position
from buildmatrix.reports.doctor import Diagnosis, HostDevices
from buildmatrix.reports.json_form import parse

#: File size limit. Ten thousand nodes with all details of a cluster take 100 to 300 MB.
LARGEST = 600_000_000
#: Size limit of the diagnosis of a host, which has a few kB.
_LARGEST_DIAGNOSIS = 10_000_000
_WANTED = "write one with `kubectl get nodes -o json` or `buildmatrix doctor --format json`"


class _List(msgspec.Struct):
    """The outermost table of any such file."""

    kind: str = ""
    schema: str = ""
    items: list[KubernetesNode] | None = None


class _Item(msgspec.Struct):
    kind: str = ""


class _Kinds(msgspec.Struct):
    """The outermost table of files with items other than nodes."""

    kind: str = ""
    schema: str = ""
    items: list[_Item] = []


def read_nodes(names: Sequence[str], catalogue: Catalogue) -> SeenNodes:
    """Read all machines of some files; `-` is standard input.

    Raises `UsageError` for a file that cannot be read, is too large, or lists no machines.
    """
    seen = SeenNodes()
    reader = NodeReader(catalogue, seen)
    for name in names:
        data = _read_bytes(name)
        title = "standard input" if name == "-" else name
        try:
            _read_one(data, title, reader, seen, catalogue)
        except RecursionError:
            raise UsageError(f"{title} nests too deeply to be a list of nodes") from None
    return seen


def _read_bytes(name: str) -> bytes:
    try:
        data = read_at_most(name, LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{name} cannot be read: {reason}; {_WANTED}") from error
    if len(data) > LARGEST:
        raise UsageError(f"{name} has more than {LARGEST:,} bytes; write a list of nodes only")
    return data.removeprefix(b"\xef\xbb\xbf")


def _read_one(
    data: bytes, title: str, reader: NodeReader, seen: SeenNodes, catalogue: Catalogue
) -> None:
    try:
        document = decode(data, _List)
        if document.kind == "Node":
            reader.read([decode(data, KubernetesNode)])
            return
    except msgspec.ValidationError as error:
        raise UsageError(f"{title} is {_describe_other(data, str(error))}; {_WANTED}") from error
    except msgspec.DecodeError as error:
        wide = " (it looks like UTF-16)" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise UsageError(f"{title} is not whole JSON{wide}: {error}; {_WANTED}") from error
    if document.schema.startswith("buildmatrix/doctor/"):
        seen.nodes.append(_read_host(data, title, catalogue))
    elif document.items is not None and document.kind in ("List", "NodeList"):
        # `kubectl get nodes,pods` makes one list of both.
        others = sorted({item.kind for item in document.items if item.kind not in ("", "Node")})
        if others:
            kinds = ", ".join(map(quoted, others[:4]))
            raise UsageError(f"{title} lists {kinds}, not only nodes; {_WANTED}")
        reader.read(document.items)
    else:
        kind = document.kind or document.schema
        raise UsageError(f"{title} is {_describe_kind(kind)}; {_WANTED}")


def _describe_kind(kind: str) -> str:
    return f"a {quoted(kind)}, not a list of nodes" if kind else "not a list of nodes"


def _describe_other(data: bytes, reason: str) -> str:
    """Describe a file whose content has other types than a list of nodes."""
    try:
        kinds = msgspec.json.decode(data, type=prepare_type(_Kinds))
    except msgspec.DecodeError:
        return f"not a list of nodes ({reason})"
    inner = sorted({item.kind for item in kinds.items} - {"", "Node"})
    if inner:
        return f"a list of {', '.join(map(quoted, inner[:4]))}, not of nodes"
    if kinds.kind not in ("", "List", "NodeList", "Node"):
        return _describe_kind(kinds.kind)
    return f"not a list of nodes ({reason})"


def _read_host(data: bytes, title: str, catalogue: Catalogue) -> Node:
    if len(data) > _LARGEST_DIAGNOSIS:
        raise UsageError(f"{title} is larger than any diagnosis of a host; {_WANTED}")
    try:
        held = parse(data, Diagnosis)
    except ValueError as error:
        raise UsageError(f"{title} is not a diagnosis of a host: {error}; {_WANTED}") from error
    return Node(
        held.host or title,
        tuple(
            Machine(
                backend=devices.backend,
                products=tuple(sorted(devices.products)),
                driver=devices.driver or "",
                memory=_memory(devices, catalogue),
                count=len(devices.nodes),
                kernel=held.kernel,
                cdi=tuple(sorted(f"{kind}=all" for kind in devices.cdi)),
            )
            for devices in held.devices
        ),
    )


def _memory(devices: HostDevices, catalogue: Catalogue) -> str:
    """Return the memory that all products of a host have by the catalogue: no file says it."""
    owned = [product(name, devices.backend, catalogue) for name in devices.products]
    amounts = {item.entry.memory if item else None for item in owned}
    return (amounts.pop() or "") if len(amounts) == 1 else ""


# Tables of a specification


#: Names in one comment or note.
_SHOWN = 8
_NAME = re.compile(r"[^a-z0-9._-]+")
#: Characters of a name, with room for a number that makes it unique.
_LONGEST = 56


def write_tables(seen: SeenNodes, catalogue: Catalogue) -> tuple[str, tuple[str, ...]]:
    """Return the tables as TOML, and a sentence for each omission.

    Machines with identical descriptions are one class. The same list gives the same text.
    """
    nodes: dict[Machine, list[str]] = {}
    for node in seen.nodes:
        for machine in node.machines:
            nodes.setdefault(machine, []).append(node.name)
    notes: list[str] = []
    names: set[str] = set()
    parts = []
    for machine in sorted(nodes, key=astuple):
        name = _make_name(machine, names)
        lines = list(_write_table(name, machine, catalogue, notes))
        comment = f"# {count(len(nodes[machine]), 'node')}: {_list_names(nodes[machine])}"
        parts.append("\n".join([comment, *lines]) + "\n")
    if plain := [node.name for node in seen.nodes if not node.machines]:
        nodes_of_none = f"{count(len(plain), 'node')} without a device that the catalogue knows"
        notes.append(f"{nodes_of_none}: {_list_names(plain)}")
    notes += describe_unknown_labels(seen)
    return "\n".join(parts), tuple(dict.fromkeys(notes))


def make_classes(seen: SeenNodes, catalogue: Catalogue, source: str) -> tuple[NodeClass, ...]:
    """Return the classes of `tables`, as loaded from a specification."""
    held = loads(write_tables(seen, catalogue)[0]).get("node-class", {})
    assert isinstance(held, Mapping)
    position = Position(source, 1)
    classes = []
    for name, table in held.items():
        fields: dict[str, Any] = {"name": name, "driver": "", "archs": (), "labels": {}, "runs": ()}
        for key, value in table.items():
            fields[key.replace("-", "_")] = tuple(value) if isinstance(value, list) else value
        fields |= {"memory": kinds.size(table.get("memory", "")), "position": position}
        classes.append(NodeClass(**fields))
    return tuple(classes)


def _list_names(names: Sequence[str]) -> str:
    return listing((printable(name) for name in sorted(names)), _SHOWN)


def _make_name(machine: Machine, taken: set[str]) -> str:
    """Make a name from the machine's products and partitions, numbered if taken."""
    words = [product_words(machine.products[0])] if machine.products else [machine.backend]
    words += [part.casefold() for part in machine.partitions[:1]]
    base = _NAME.sub("-", "-".join(words))[:_LONGEST].strip("._-") or machine.backend
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name


def _write_table(
    name: str, machine: Machine, catalogue: Catalogue, notes: list[str]
) -> Iterator[str]:
    """Yield the lines of one class. Values invalid in a specification are omitted and noted."""

    def fit(key: str, kind: Kind, values: Sequence[str]) -> list[str]:
        fitting = []
        for value in values:
            complaint = kind.complaint(value)
            if complaint is None:
                fitting.append(value)
            else:
                notes.append(f"{name}: `{key}` is left out: {quoted(value)} {complaint}")
        return fitting

    def line(key: str, value: object) -> Iterator[str]:
        if value:
            yield f"{key} = {written(value)}"

    def one(key: str, kind: Kind, value: str) -> Iterator[str]:
        for fitting in fit(key, kind, [value] if value else []):
            yield from line(key, fitting)

    products, archs = _select_devices(name, machine, catalogue, notes)
    yield f"[node-class.{written_key(name)}]"
    yield from line("backend", machine.backend)
    yield from one("driver", kinds.DRIVER, machine.driver)
    yield from line("archs", fit("archs", kinds.ARCH, archs))
    yield from line("products", fit("products", kinds.PRODUCT, products))
    yield from one("memory", kinds.SIZE, machine.memory)
    if 0 < machine.count <= 10_000:
        yield from line("count", machine.count)
    if len(machine.partitions) == 1:
        yield from one("partition", kinds.PARTITION, machine.partitions[0])
    elif machine.partitions:
        parts = ", ".join(map(quoted, machine.partitions[:_SHOWN]))
        notes.append(f"{name}: `partition` is left out: its devices are divided into {parts}")
    yield from one("kernel", kinds.KERNEL, machine.kernel)
    yield from one("container-runtime", kinds.CONTAINER_RUNTIME, machine.container_runtime)
    yield from one("cpu", kinds.CPU_LEVEL, machine.cpu)
    yield from line("resources", fit("resources", kinds.RESOURCE, machine.resources))
    yield from line("tolerations", fit("tolerations", kinds.TOLERATION, machine.taints))
    yield from line("cdi", fit("cdi", kinds.CDI_DEVICE, machine.cdi))
    labels = {
        key: value
        for key, value in machine.labels
        if fit("labels", kinds.LABEL, [key]) and fit("labels", kinds.VALUE, [value])
    }
    yield from line("labels", labels)


def _select_devices(
    name: str, machine: Machine, catalogue: Catalogue, notes: list[str]
) -> tuple[list[str], Sequence[str]]:
    """Return products known to the catalogue; else the architectures from labels."""
    products, unknown = [], []
    by_product: list[str] = []
    for item in machine.products:
        owned = product(item, machine.backend, catalogue)
        if owned is not None and owned.backend == machine.backend:
            products.append(item)
            by_product += owned.entry.architectures
        else:
            unknown.append(item)
    if unknown:
        names = ", ".join(map(quoted, unknown[:_SHOWN]))
        rest = "" if machine.archs else "; write its `archs`"
        notes.append(f"{name}: the catalogue knows no product {names}{rest}")
        return products, machine.archs
    if machine.archs and by_product and not set(machine.archs) <= set(by_product):
        notes.append(
            f"{name}: labels say {', '.join(machine.archs)}, and the catalogue says "
            f"{', '.join(by_product)} for {', '.join(map(quoted, products))}; `archs` has "
            "what the labels say"
        )
        return [], machine.archs
    return products, () if products else machine.archs


def describe_unknown_labels(seen: SeenNodes) -> Iterator[str]:
    """Yield a sentence about unused labels and resources, if there are any."""
    if seen.unknown:
        keys = (
            f"{quoted(key)} ({count(number, 'node')})"
            for key, number in sorted(seen.unknown.items())
        )
        yield f"nothing was made of labels and resources that are not known: {listing(keys, 20)}"
