"""Metadata of wheel variants: what a wheel was built for beyond its platform tags.

Formats: `*.dist-info/variant.json` of a wheel, and `NAME-VERSION-variants.json` of an index, which
has all variants of a release (PEP 825, draft of August 2026; before that PEP 817, whose files have
priorities of features and values, too, and providers, which are not run here).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from buildmatrix.inventory.model import Variant

#: Bytes of the metadata of one wheel, and of an index. A real one has a few thousand.
LARGEST = 64 << 10
LARGEST_OF_INDEX = 4 << 20
#: Label of the variant without properties, which fits everywhere.
NULL = "null"
#: The last one of the format that is understood.
_MAJOR = 1
#: Characters of a label or of a part of a property.
_LONGEST = 256
_MOST_LABELS = 10_000

_VERSION = re.compile(r"/v([0-9]{1,9})\.[0-9]{1,9}(?:\.[0-9]{1,9})?\.json\Z")
_NAME = re.compile(rf"[a-z0-9_]{{1,{_LONGEST}}}")
_VALUE = re.compile(rf"[a-z0-9_.]{{1,{_LONGEST}}}")

#: Namespace → feature → values.
Properties = Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class VariantMetadata:
    """The variants of a wheel or a release, and which of their properties matter most."""

    #: Label → its properties; those of `null` are empty.
    variants: Mapping[str, Properties]
    #: The most important first.
    namespaces: tuple[str, ...]
    #: Of drafts before PEP 825: what comes first, whatever else its namespace would say.
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Properties = field(default_factory=dict)


def read_variant(data: bytes) -> Variant:
    """The variant of a wheel. Raises ValueError, one sentence, for what is no such metadata."""
    metadata = read_variants(data)
    if len(metadata.variants) != 1:
        raise ValueError(
            f"the variant metadata of a wheel have one variant, and these have "
            f"{len(metadata.variants)}"
        )
    ((label, properties),) = metadata.variants.items()
    return Variant(label, spelled(properties))


def spelled(properties: Properties) -> tuple[str, ...]:
    """`nvidia :: sm_arch :: 90_real`, sorted."""
    return tuple(
        f"{namespace} :: {feature} :: {value}"
        for namespace, features in sorted(properties.items())
        for feature, values in sorted(features.items())
        for value in sorted(values)
    )


def of_wheel(variant: Variant) -> VariantMetadata:
    """The variant of a wheel as the metadata of a release that has no other one."""
    properties: dict[str, dict[str, tuple[str, ...]]] = {}
    for line in variant.properties:
        namespace, feature, value = line.split(" :: ")
        features = properties.setdefault(namespace, {})
        features[feature] = (*features.get(feature, ()), value)
    return VariantMetadata({variant.label: properties}, tuple(properties))


def read_variants(data: bytes) -> VariantMetadata:
    """The metadata of a wheel or an index. Raises ValueError, one sentence, for anything else."""
    try:
        document = json.loads(data, object_pairs_hook=_once)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the variant metadata are no JSON: {error}") from None
    _is(document, dict, "the variant metadata")
    _check_version(document.get("$schema"))
    priorities = _is(document.get("default-priorities"), dict, "`default-priorities`")
    variants = _is(document.get("variants"), dict, "`variants`")
    if not 0 < len(variants) <= _MOST_LABELS:
        raise ValueError(f"`variants` has {len(variants)} labels: between 1 and {_MOST_LABELS:,}")
    metadata = VariantMetadata(
        {_text(label, _VALUE): _properties(value) for label, value in variants.items()},
        _texts(priorities.get("namespace"), _NAME, "`default-priorities.namespace`"),
        {
            _text(namespace, _NAME): _texts(features, _NAME, "a priority")
            for namespace, features in _is(
                priorities.get("feature", {}), dict, "`default-priorities.feature`"
            ).items()
        },
        _properties(priorities.get("property", {})),
    )
    for label, properties in metadata.variants.items():
        if (label == NULL) != (not properties):
            raise ValueError(
                f"the variant {label!r} has "
                + ("properties" if properties else "none, and only `null` is without")
            )
        for namespace in properties:
            if namespace not in metadata.namespaces:
                raise ValueError(
                    f"the variant {label!r} has properties of {namespace!r}, which "
                    "`default-priorities.namespace` does not list"
                )
    return metadata


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object whose keys are there once: two readers could see different variants."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("the variant metadata say something twice: a key of an object is repeated")
    return result


def _check_version(schema: object) -> None:
    match = _VERSION.search(schema) if isinstance(schema, str) else None
    if match is not None and int(match[1]) > _MAJOR:
        raise ValueError(
            f"the variant metadata are of version {match[1]} of their format, and {_MAJOR} is the "
            "last that is known"
        )


def _properties(value: object) -> Properties:
    return {
        _text(namespace, _NAME): {
            _text(feature, _NAME): _texts(values, _VALUE, "a feature")
            for feature, values in _is(features, dict, "a namespace").items()
        }
        for namespace, features in _is(value, dict, "a variant").items()
    }


def _texts(value: object, pattern: re.Pattern[str], what: str) -> tuple[str, ...]:
    texts = tuple(_text(item, pattern) for item in _is(value, list, what))
    if not texts or len(set(texts)) < len(texts):
        raise ValueError(f"{what} of the variant metadata is empty, or names something twice")
    return texts


def _text(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError(f"the variant metadata have {str(value)[:60]!r}, which no name can be")
    return value


def _is(value: object, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        name = "an object" if kind is dict else "a list"
        raise ValueError(f"{what} of the variant metadata is not {name}")
    return value
