"""The Jinja environment: where templates are found, and what they can do.

Templates of a user's repository are input like any other: they run in Jinja's sandbox, an unknown
name in them is an error, and what they print is checked by `quoting.plain`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from weakref import WeakKeyDictionary

from jinja2 import (
    ChoiceLoader,
    FileSystemLoader,
    StrictUndefined,
    TemplateNotFound,
    TemplateSyntaxError,
    UndefinedError,
    nodes,
)
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from buildmatrix.errors import Problem, SpecError
from buildmatrix.render.quoting import FILTERS, Unquotable, comment, plain

#: Environment → templates whose blocks are right; targets share few templates, and parsing one
#: costs more than rendering it.
_CHECKED = WeakKeyDictionary[ImmutableSandboxedEnvironment, set[str]]()


def make_environment(root: Path) -> ImmutableSandboxedEnvironment:
    """An environment that finds buildmatrix's templates, then those under `root`."""
    environment = ImmutableSandboxedEnvironment(
        loader=ChoiceLoader([FileSystemLoader(builtin_templates()), FileSystemLoader(root)]),
        undefined=StrictUndefined,
        # Marks what macros, blocks and filters return as finished, so that `finalize` can tell it
        # from a bare value.
        autoescape=True,
        finalize=plain,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    return environment


def builtin_templates() -> Path:
    """The folder of buildmatrix's own templates: packaged, or at the top of a source checkout."""
    packaged = Path(__file__).parent / "templates"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "templates"


def render(
    environment: ImmutableSandboxedEnvironment,
    template: str,
    variables: Mapping[str, object],
    *,
    subject: str,
) -> str:
    """The text of `template` for `subject` (a target, or `scan`).

    Raises `SpecError` that names the template, the subject and what to change.
    """
    try:
        checked = _CHECKED.setdefault(environment, set())
        if template not in checked:
            _check_blocks(environment, template)
            checked.add(template)
        return environment.get_template(template).render(variables)
    except TemplateNotFound as error:
        name = str(error.name or template)
        if name != template:
            hint = f"write `{name}` beside the specification, or name one that is there"
            raise _error(f"uses `{name}`, which does not exist", template, hint=hint) from error
        hint = "write that file, beginning with {% extends 'backend.Dockerfile.j2' %}"
        raise _error(f"{subject}: its template does not exist", template, hint=hint) from error
    except TemplateSyntaxError as error:
        name = error.name or template
        raise _error(error.message or "is no template", name, line=error.lineno) from error
    except (Unquotable, UndefinedError) as error:
        raise _error(f"{subject}: {error}", template, hint="see docs/templates.md") from error
    except (SecurityError, TemplateRuntimeError, TypeError, ValueError, RecursionError) as error:
        raise _error(f"{subject}: cannot be rendered: {error}", template) from error


def render_piece(
    environment: ImmutableSandboxedEnvironment, text: str, variables: Mapping[str, object]
) -> str:
    """The text of a template without a file: a macro as in a target's Dockerfile."""
    return environment.from_string(text).render(variables)


def _check_blocks(environment: ImmutableSandboxedEnvironment, template: str) -> None:
    """Jinja prints nothing of a block that no parent has: a misspelt one would have no effect."""
    chain: dict[str, nodes.Template] = {}
    name: str | None = template
    while name is not None and name not in chain:
        assert environment.loader is not None
        source, path, _ = environment.loader.get_source(environment, name)
        chain[name] = environment.parse(source, name, path)
        extends = chain[name].find(nodes.Extends)
        if extends is not None and not isinstance(extends.template, nodes.Const):
            return  # Which template it is shows only when it is rendered.
        name = str(extends.template.as_const()) if extends is not None else None
    defined: set[str] = set()
    for child in list(chain)[:0:-1]:
        defined |= {block.name for block in chain[child].find_all(nodes.Block)}
        user = list(chain)[list(chain).index(child) - 1]
        for block in _outer_blocks(chain[user]):
            if block.name not in defined:
                near = difflib.get_close_matches(block.name, sorted(defined), n=1)
                hint = f"did you mean `{near[0]}`?" if near else "see docs/templates.md"
                message = f"`{child}` has no block `{block.name}`"
                raise _error(message, user, line=block.lineno, hint=hint)


def _outer_blocks(node: nodes.Node) -> Iterator[nodes.Block]:
    """Blocks that are in no other block; one inside another is printed with it."""
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Block):
            yield child
        else:
            yield from _outer_blocks(child)


def _error(
    message: str, template: str, *, line: int | None = None, hint: str | None = None
) -> SpecError:
    # Names in it may be hostile, and a message is one line.
    return SpecError([Problem(comment(message), comment(template), line, hint=hint)])
