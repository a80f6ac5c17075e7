"""Reader for lists of machines.

A file is the output of `kubectl get nodes -o json` (a List, or a single Node), or that of `doctor
--format json` on a host.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buildmatrix.catalogue.architectures import product
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.commands.node_classes.kubernetes import KubernetesNode, NodeReader, decode
from buildmatrix.commands.node_classes.model import Machine, Node, SeenNodes
from buildmatrix.errors import UsageError
from buildmatrix.files import read_at_most
from buildmatrix.reports.doctor import Diagnosis, HostDevices
from buildmatrix.reports.json_form import parse
from buildmatrix.spec.document import quoted
from buildmatrix.threads import prepare_type

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
            raise UsageError(f"{title} lists {kinds}, and not only nodes; {_WANTED}")
        reader.read(document.items)
    else:
        kind = document.kind or document.schema
        raise UsageError(f"{title} is {_describe_kind(kind)}; {_WANTED}")


def _describe_kind(kind: str) -> str:
    return f"a {quoted(kind)} and no list of nodes" if kind else "no list of nodes"


def _describe_other(data: bytes, reason: str) -> str:
    """Describe a file whose content has other types than a list of nodes."""
    try:
        kinds = msgspec.json.decode(data, type=prepare_type(_Kinds))
    except msgspec.DecodeError:
        return f"no list of nodes ({reason})"
    inner = sorted({item.kind for item in kinds.items} - {"", "Node"})
    if inner:
        return f"a list of {', '.join(map(quoted, inner[:4]))} and no list of nodes"
    if kinds.kind not in ("", "List", "NodeList", "Node"):
        return _describe_kind(kinds.kind)
    return f"no list of nodes ({reason})"


def _read_host(data: bytes, title: str, catalogue: Catalogue) -> Node:
    if len(data) > _LARGEST_DIAGNOSIS:
        raise UsageError(f"{title} is larger than any diagnosis of a host; {_WANTED}")
    try:
        held = parse(data, Diagnosis)
    except ValueError as error:
        raise UsageError(f"{title} is no diagnosis of a host: {error}; {_WANTED}") from error
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
