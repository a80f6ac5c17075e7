"""Settings come in layers: defaults < backend < variant < overrides. This puts them together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from buildmatrix.spec.document import Problems
from buildmatrix.spec.hints import did_you_mean
from buildmatrix.spec.keys import SpecFile
from buildmatrix.spec.keys_settings import OverrideTable, TargetSettings
from buildmatrix.spec.shapes import SourceText
from buildmatrix.spec.tables import Key, keys_of

SETTINGS: Mapping[str, Key] = {key.name: key for key in keys_of(TargetSettings)}

#: Settings that `inherit` can speak of: the others have nothing to append to.
APPENDABLE = tuple(name for name, key in SETTINGS.items() if key.shape.extensible)


def all_settings(file: SpecFile) -> tuple[TargetSettings, ...]:
    """Every table of a file that has settings."""
    return (file.defaults, *file.backend.values(), *file.variant.values(), *file.override)


def specialize(general: TargetSettings, special: TargetSettings) -> TargetSettings:
    """`general` with what a backend or a variant says on top, each key in its own way."""
    return _combine(
        general, special, {name: key.merge != "replace" for name, key in SETTINGS.items()}
    )


def override(settings: TargetSettings, over: OverrideTable) -> TargetSettings:
    """`settings` with an override on top: it replaces, unless its `inherit` says `append`."""
    return _combine(
        settings, over, {name: way.value == "append" for name, way in over.inherit.items()}
    )


def check_override(over: OverrideTable, problems: Problems) -> None:
    """An override sets something, and `inherit` names only lists and tables that it sets."""
    if all(getattr(over, key.field) is None for key in SETTINGS.values()):
        message = "this override sets nothing"
        problems.add(over.at, message, "write a setting, such as `archs`", doubtful=True)
    for name, way in over.inherit.items():
        if name not in APPENDABLE:
            reason = "is a single value" if name in SETTINGS else "is not a setting"
            problems.add(
                way.at,
                f"`inherit` names `{name}`, which {reason}: nothing can be appended to it",
                did_you_mean(name, APPENDABLE, "lists and tables"),
            )
        elif getattr(over, SETTINGS[name].field) is None:
            problems.add(
                way.at,
                f"`inherit` names `{name}`, which this override does not set",
                f"add `{name}` to the override, or remove it from `inherit`",
                doubtful=True,
            )


def _combine(
    low: TargetSettings, high: TargetSettings, append: Mapping[str, bool]
) -> TargetSettings:
    changes: dict[str, object] = {}
    for name, key in SETTINGS.items():
        old: object = getattr(low, key.field)
        new: object = getattr(high, key.field)
        if new is None:
            continue
        if append.get(name) and isinstance(old, tuple) and isinstance(new, tuple):
            new = old + new
        elif append.get(name) and isinstance(old, dict) and isinstance(new, dict):
            new = old | new
        changes[key.field] = new
    return dataclasses.replace(low, **changes)  # type: ignore[arg-type]  # same fields, same types


def sound(texts: tuple[SourceText, ...] | None) -> tuple[SourceText, ...]:
    """The texts without the stand-ins of wrong ones."""
    return tuple(text for text in texts or () if text.sound)


def values(texts: tuple[SourceText, ...]) -> tuple[str, ...]:
    """The strings of texts, without the stand-ins of wrong ones."""
    return tuple(text.value for text in sound(texts))


def value(text: SourceText | None) -> str:
    """The string of a text; empty where there is none, or a wrong one."""
    return text.value if text is not None and text.sound else ""
