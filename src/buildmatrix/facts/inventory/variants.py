"""Metadata of wheel variants: the build target of a wheel beyond its platform tags.

Formats: `*.dist-info/variant.json` of a wheel, and `NAME-VERSION-variants.json` of an index, with
all variants of a release (PEP 825, draft of August 2026; before that PEP 817, whose files also have
priorities of features and values, and providers, which are not run here).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from buildmatrix.facts.inventory.model import Variant

#: Size limit of the metadata of one wheel, and of an index. Real ones have a few thousand bytes.
LARGEST = 64 << 10
LARGEST_OF_INDEX = 4 << 20
#: Label of the variant without properties, which fits everywhere.
NULL = "null"
#: Latest supported major version of the format.
_MAJOR = 1
#: Characters of a label or of a part of a property.
_LONGEST = 256
_MOST_LABELS = 10_000

_VERSION = re.compile(r"/v([0-9]{1,9})\.[0-9]{1,9}(?:\.[0-9]{1,9})?\.json\Z")
_NAME = re.compile(rf"[a-z0-9_]{{1,{_LONGEST}}}")
_VALUE = re.compile(rf"[a-z0-9_.]{{1,{_LONGEST}}}")

#: Namespace to feature to values.
Properties = Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class VariantMetadata:
    """The variants of a wheel or a release, and the priorities of their properties."""

    #: Label to properties; those of `null` are empty.
    variants: Mapping[str, Properties]
    #: By decreasing priority.
    namespaces: tuple[str, ...]
    #: Priorities in drafts before PEP 825, which override those of the namespace.
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Properties = field(default_factory=dict)


def read_variant(data: bytes) -> Variant:
    """Read the variant of a wheel. Raises ValueError, one sentence, for invalid metadata."""
    metadata = read_variants(data)
    if len(metadata.variants) != 1:
        raise ValueError(
            f"the variant metadata of a wheel have one variant, and these have "
            f"{len(metadata.variants)}"
        )
    ((label, properties),) = metadata.variants.items()
    return Variant(label, format_properties(properties))


def format_properties(properties: Properties) -> tuple[str, ...]:
    """Format properties as `nvidia :: sm_arch :: 90_real`, sorted."""
    return tuple(
        f"{namespace} :: {feature} :: {value}"
        for namespace, features in sorted(properties.items())
        for feature, values in sorted(features.items())
        for value in sorted(values)
    )


def make_metadata(variant: Variant) -> VariantMetadata:
    """Return a wheel's variant as the metadata of a release without other variants."""
    properties: dict[str, dict[str, tuple[str, ...]]] = {}
    for line in variant.properties:
        namespace, feature, value = line.split(" :: ")
        features = properties.setdefault(namespace, {})
        features[feature] = (*features.get(feature, ()), value)
    return VariantMetadata({variant.label: properties}, tuple(properties))


def read_variants(data: bytes) -> VariantMetadata:
    """Read the metadata of a wheel or an index. Raises ValueError, one sentence, if invalid."""
    try:
        document = json.loads(data, object_pairs_hook=_reject_duplicates)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the variant metadata are no JSON: {error}") from None
    _check_type(document, dict, "the variant metadata")
    version = _VERSION.search(str(document.get("$schema")))
    if version is not None and int(version[1]) > _MAJOR:
        raise ValueError(
            f"the variant metadata are of version {version[1]} of their format, and {_MAJOR} is "
            "the last that is known"
        )
    priorities = _check_type(document.get("default-priorities"), dict, "`default-priorities`")
    variants = _check_type(document.get("variants"), dict, "`variants`")
    if not 0 < len(variants) <= _MOST_LABELS:
        raise ValueError(f"`variants` has {len(variants)} labels: between 1 and {_MOST_LABELS:,}")
    metadata = VariantMetadata(
        {_check_name(label, _VALUE): _parse_properties(value) for label, value in variants.items()},
        _check_names(priorities.get("namespace"), _NAME, "`default-priorities.namespace`"),
        {
            _check_name(namespace, _NAME): _check_names(features, _NAME, "a priority")
            for namespace, features in _check_type(
                priorities.get("feature", {}), dict, "`default-priorities.feature`"
            ).items()
        },
        _parse_properties(priorities.get("property", {})),
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


def _reject_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object without duplicate keys, for which readers could see different variants."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("the variant metadata say something twice: a key of an object is repeated")
    return result


def _parse_properties(value: object) -> Properties:
    return {
        _check_name(namespace, _NAME): {
            _check_name(feature, _NAME): _check_names(values, _VALUE, "a feature")
            for feature, values in _check_type(features, dict, "a namespace").items()
        }
        for namespace, features in _check_type(value, dict, "a variant").items()
    }


def _check_names(value: object, pattern: re.Pattern[str], what: str) -> tuple[str, ...]:
    texts = tuple(_check_name(item, pattern) for item in _check_type(value, list, what))
    if not texts or len(set(texts)) < len(texts):
        raise ValueError(f"{what} of the variant metadata is empty, or names something twice")
    return texts


def _check_name(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError(f"the variant metadata have {str(value)[:60]!r}, which no name can be")
    return value


def _check_type(value: object, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        name = "an object" if kind is dict else "a list"
        raise ValueError(f"{what} of the variant metadata is not {name}")
    return value
