"""Labels of an image about the runtime that it is made for; BM705 compares them.

Today's container runtimes read none of these labels, so the labels refuse nothing by themselves:
they state the intent of the base's maker.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.names import matches_any
from buildmatrix.catalogue.runtimes import toolkit_line
from buildmatrix.rules.belonging import title
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.node_reasons import Reason
from buildmatrix.rules.runtime_versions import runtimes
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.model import NodeClass
from buildmatrix.spec.version_range import Numbers, numbers, version_range
from buildmatrix.text import shown


def labels(image: ImageSubject) -> Iterator[tuple[str, str, Numbers]]:
    """Labels with a version of the backend's runtime: name, text, and at least two numbers."""
    for row in drivers.of_backend(image.catalogue.image_labels, image.backend):
        for name, text in sorted(image.inventory.labels.items()):
            version = numbers(text)
            if matches_any(row.names, name) and version is not None and len(version) > 1:
                yield name, text, version


def against_target(image: ImageSubject) -> Iterator[Finding]:
    """Labels of another toolkit line than the target's."""
    line = toolkit_line(image.target.runtime)
    for name, text, version in labels(image):
        if line is not None and str(version[0]) != line:
            ours = title(image.backend, image.catalogue)
            yield finding(
                "BM705",
                image,
                f"the image has the label {name}={shown(text)}, and the target is for {ours} "
                f"{image.target.runtime}: its base was made for another line",
                severity="warning",
                vendor=image.own_vendor,
                fix=Fix("base", f"take a base image for {ours} {image.target.runtime}"),
                identity=name,
            )


def against_node(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Labels that ask for a newer driver than a node class has.

    Where the runtime itself is in the image, its version is what counts (BM701).
    """
    is_known = any(runtime.version is not None for runtime in runtimes(image))
    for name, text, version in labels(image):
        toolkit = ".".join(map(str, version[:2]))
        driver = version_range(node.driver)
        if drivers.runs(toolkit, driver, image.backend, image.catalogue) != "refused":
            continue
        yield Reason(
            rule="BM705",
            node=node.name,
            state="ok" if is_known else "undecided",
            severity="note" if is_known else "warning",
            about=f"the image has the label {name}={shown(text)}",
            there=f"{node.name} has driver {node.driver}, which does not run that: "
            + (
                "the runtime that is in the image decides"
                if is_known
                else "no runtime in the image says otherwise"
            ),
            fix=Fix("base", "take a base image of an older toolkit, or upgrade the driver"),
        )
