"""One HTML page that needs nothing else: to keep as an artifact of a CI job, and to print.

Names and texts come from images that nobody vouches for. They are escaped by Jinja2, and the page's
Content-Security-Policy allows no request, and no style and script but its own two, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from buildmatrix.phrases import count, size
from buildmatrix.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

#: What each page has; see `base.html.j2`.
_STYLE, _SCRIPT = "page/style.css", "page/script.js"


def render(
    template: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    filters: Mapping[str, Callable[..., object]] | None = None,
    **values: object,
) -> str:
    """A page from a template that extends `page/base.html.j2`; the same values give the same bytes.

    Args:
        template: its path below `buildmatrix/reports`, such as `run/page/report.html.j2`.
        styles: style sheets that it has beside the shared one, by such paths.
        scripts: its scripts beside the shared one. Nothing in them may need another page's.
        filters: what its templates write behind a bar, beside `size`, `count` and `rich`; the same
            functions each time.
        values: what the template names. Texts among them are escaped, and shown on one line.

    A template writes no `style` and no `on...` attributes: the policy would stop them.
    """
    from markupsafe import Markup

    environment = _environment(tuple((filters or {}).items()))
    style = "".join(map(_file, (_STYLE, *styles)))
    script = "".join(map(_file, (_SCRIPT, *scripts)))
    return environment.get_template(template).render(
        **values,
        # Our own files, not the document's content.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        policy="; ".join(
            (
                "default-src 'none'",
                f"style-src '{_digest(style)}'",
                f"script-src '{_digest(script)}'",
                "base-uri 'none'",
                "form-action 'none'",
            )
        ),
    )


@cache
def _environment(filters: tuple[tuple[str, Callable[..., object]], ...]) -> Environment:
    """Return the template environment, which compiles each template once."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters.update({"size": size, "count": count, "rich": rich, **dict(filters)})
    return environment


def rich(text: str) -> Markup:
    """A message of ours, escaped; what stands between backticks is code."""
    from markupsafe import Markup, escape

    parts = [escape(printable(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return escape(printable(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part
        for number, part in enumerate(parts)
    )


def _file(path: str) -> str:
    return (resources.files("buildmatrix.reports") / path).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """A hash source of CSP level 3, section 2.3.1."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
