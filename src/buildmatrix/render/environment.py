"""The Jinja environment: where templates are found, and what they can do.

Templates of a user's repository are input like any other: they run in Jinja's sandbox, an unknown
name in them is an error, and what they print is checked by `quoting.plain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jinja2 import (
    ChoiceLoader,
    FileSystemLoader,
    StrictUndefined,
    TemplateNotFound,
    TemplateSyntaxError,
    UndefinedError,
)
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from buildmatrix.errors import Problem, SpecError
from buildmatrix.render.quoting import FILTERS, Unquotable, comment, plain


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
        return environment.get_template(template).render(variables)
    except TemplateNotFound as error:
        name = str(error.name or template)
        if name != template:
            raise _error(f"uses `{name}`, and there is no such template", template) from error
        hint = "write that file, beginning with {% extends 'base.Dockerfile.j2' %}"
        raise _error(f"{subject}: there is no such template", template, hint=hint) from error
    except TemplateSyntaxError as error:
        name = error.name or template
        raise _error(error.message or "is no template", name, line=error.lineno) from error
    except (Unquotable, UndefinedError) as error:
        raise _error(f"{subject}: {error}", template, hint="see docs/templates.md") from error
    except (SecurityError, TemplateRuntimeError, TypeError, ValueError, RecursionError) as error:
        raise _error(f"{subject}: cannot be rendered: {error}", template) from error


def _error(
    message: str, template: str, *, line: int | None = None, hint: str | None = None
) -> SpecError:
    # Names in it may be hostile, and a message is one line.
    return SpecError([Problem(comment(message), comment(template), line, hint=hint)])
