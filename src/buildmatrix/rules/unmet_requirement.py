"""BM705: the environment or the labels of an image ask for what a node class does not have.

The container runtime checks the environment and does not start the container.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.conditions import InvalidConditionError, NodeFacts, met
from buildmatrix.catalogue.format.versions import Condition
from buildmatrix.catalogue.names import matches_any
from buildmatrix.catalogue.products import architectures, is_product
from buildmatrix.rules import image_labels
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.node_reasons import Reason, findings_of
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.model import NodeClass
from buildmatrix.spec.version_range import Numbers, numbers, version_range
from buildmatrix.text import shown

#: Texts that Go's strconv.ParseBool accepts as true.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_ARCH = re.compile(r"sm_(\d{1,4}?)(\d)[af]?")
#: Characters of a condition that a message shows: the first alternative is the one that counts.
_SHOWN = 80


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per variable and label."""
    yield from findings_of("BM705", image, reasons)
    yield from image_labels.against_target(image)


def reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield the conditions that a node class does not meet, or may not meet."""
    for row in drivers.of_backend(image.catalogue.conditions, image.backend):
        for name, condition in _conditions(image, row):
            reason = _judged(image, node, row, name, condition)
            if reason is not None:
                yield reason
    yield from image_labels.against_node(image, node)


def _conditions(image: ImageSubject, row: Condition) -> Iterator[tuple[str, str]]:
    """The variables that set a condition, and it."""
    environment = image.inventory.environment
    if environment.get(row.unless) in _TRUE:
        return
    named = [
        name
        for name in sorted(environment)
        if matches_any(row.variables, name) and not matches_any(row.not_variables, name)
    ]
    for name in named:
        if environment[name].strip():
            yield name, environment[name]
    version = numbers(environment.get(row.legacy, ""))
    if not any(environment[name] for name in named) and version is not None and len(version) > 1:
        yield row.legacy, f"cuda>={version[0]}.{version[1]}"


def _judged(
    image: ImageSubject, node: NodeClass, row: Condition, name: str, condition: str
) -> Reason | None:
    facts = _facts(image, node)
    first = condition.split(" ")[0] if name == row.legacy else condition
    about = f"the image sets {name}={shown(first[:_SHOWN])}{'...' if len(first) > _SHOWN else ''}"
    try:
        # Each of the brands that it may be may have an alternative of its own.
        outcomes = {met(condition, replace(facts, brands=frozenset({brand})))
                    for brand in facts.brands} or {met(condition, facts)}  # fmt: skip
        outcome = outcomes.pop() if len(outcomes) == 1 else None
    except InvalidConditionError as error:
        return Reason(
            rule="BM705",
            node=node.name,
            state="refused",
            severity="error",
            about=about,
            there=f"{shown(str(error))}, so no container starts",
            fix=Fix("base", f"take {name} out of the image, or set it as its base does"),
        )
    if outcome is True:
        return None
    has = f"driver {node.driver}" if node.driver else "a driver that is not named"
    toolkit = facts.versions.get("cuda")
    is_cuda = f", which is CUDA {toolkit[0]}.{toolkit[1]}" if toolkit is not None else ""
    return Reason(
        rule="BM705",
        node=node.name,
        state="undecided" if outcome is None else "refused",
        severity="note" if outcome is None else "error",
        about=about,
        there=f"{node.name} has {has}{is_cuda}"
        + (
            ": whether that is enough, `driver` and `products` of the node class do not say"
            if outcome is None
            else ": the container does not start (`unsatisfied condition`)"
        ),
        fix=Fix(
            "base",
            "take a base image of an older toolkit, upgrade the driver, or take the target from "
            f"the node class; {row.unless}=1 skips the check, and cures nothing",
        ),
    )


def _facts(image: ImageSubject, node: NodeClass) -> NodeFacts:
    driver = version_range(node.driver)
    toolkit = (
        drivers.toolkit_of(driver.lowest, image.backend, image.catalogue)
        if driver.lowest is not None
        else None
    )
    brands: set[str] = set()
    for product in node.products:
        for row in drivers.of_backend(image.catalogue.brands, image.backend):
            if is_product(row.names, product):
                brands.update(row.brands)
                break
        else:
            return NodeFacts(_versions(image, node, driver.lowest, toolkit))
    return NodeFacts(_versions(image, node, driver.lowest, toolkit), frozenset(brands))


def _versions(
    image: ImageSubject, node: NodeClass, driver: Numbers | None, toolkit: str | None
) -> dict[str, Numbers | None]:
    capabilities = {
        (int(match[1] or "0"), int(match[2]))
        for arch in architectures(node, image.catalogue)
        if (match := _ARCH.fullmatch(arch)) is not None
    }
    return {
        "cuda": numbers(toolkit) if toolkit is not None else None,
        "driver": driver,
        "arch": capabilities.pop() if len(capabilities) == 1 else None,
    }
