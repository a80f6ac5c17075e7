"""Bounded parser for YAML that a tool wrote: lists, tables and text, with the lines of tables.

It reads events, and makes no objects by tags. It refuses what two readers may take differently or
what makes a small text large: aliases, tags, a key that comes twice, `<<`, several documents. Tools
that write locks use none of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: Lists and tables within one another; locks have seven.
_DEEPEST = 30
#: Texts, lists and tables; a lock of 5,000 packages has 150,000.
MOST_VALUES = 1_000_000
#: Spellings of no value, outside of quotes.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})


class YamlError(ValueError):
    """A reason to refuse a document, with its line and column, from 1; 0 if unknown."""

    def __init__(self, why: str, line: int = 0, column: int = 0) -> None:
        super().__init__(why)
        self.line = line
        self.column = column


class Table(dict[str, "Value"]):
    """A table, and the line where it begins, from 1."""

    line: int = 0


Value = Table | list["Value"] | str | None


def parse_yaml(text: str) -> Value:
    """Return the one document in `text`; all scalars are text. Raises `YamlError`."""
    import yaml

    loader: Any = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
    try:
        with yaml_errors():
            return _build(yaml.parse(text, Loader=loader))
    except RecursionError as error:
        raise YamlError("it nests too deeply") from error


@contextmanager
def yaml_errors() -> Iterator[None]:
    """Raise `YamlError` for what PyYAML raises of a text that is not YAML."""
    import yaml

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        raise YamlError(str(error.problem or error.context), *place) from error
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # Characters that YAML does not have, and numbers in escapes and in `%YAML`.
        raise YamlError(str(error).splitlines()[0]) from error


def _build(events: Iterable[Any]) -> Value:
    """Build the document of a stream of events."""
    from yaml import events as kinds

    root: list[Value] = []
    above: list[Table | list[Value]] = [root]
    keys: list[str | None] = [None]
    values = 0
    for event in events:
        if isinstance(event, (kinds.MappingEndEvent, kinds.SequenceEndEvent)):
            above.pop()
            keys.pop()
            continue
        if not isinstance(event, kinds.NodeEvent):
            continue
        node: Any = event
        mark = node.start_mark
        line, column = mark.line + 1, mark.column + 1
        values += 1
        if values > MOST_VALUES:
            raise YamlError(f"it has more than {MOST_VALUES:,} values", line, column)
        if len(above) > _DEEPEST:
            raise YamlError("it nests too deeply", line, column)
        if isinstance(event, kinds.AliasEvent) or node.anchor is not None:
            raise YamlError("anchors and aliases (`&`, `*`) are not supported", line, column)
        if node.tag is not None:
            raise YamlError(f"tags (`{node.tag[:80]}`) are not supported", line, column)
        value: Value
        if isinstance(event, kinds.ScalarEvent):
            value = None if node.implicit[0] and node.value in _NULL else node.value
        elif isinstance(event, kinds.MappingStartEvent):
            value = Table()
            value.line = line
        else:
            value = []
        parent = above[-1]
        if isinstance(parent, list):
            if parent is root and root:
                raise YamlError("there is more than one document", line, column)
            parent.append(value)
        elif keys[-1] is None:
            # A key: of a list or a table, readers make different things.
            if not isinstance(value, str) or value == "<<":
                raise YamlError("a key is not a text", line, column)
            if value in parent:
                raise YamlError(f"the key `{value[:80]}` comes twice", line, column)
            keys[-1] = value
            continue
        else:
            parent[keys[-1]], keys[-1] = value, None
        if isinstance(value, (Table, list)):
            above.append(value)
            keys.append(None)
    return root[0] if root else None
