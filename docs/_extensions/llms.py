"""`llms.txt`: the pages of the site for language models (https://llmstxt.org, of 2026-11-22)."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

HEAD = """\
# buildmatrix

> Proves that a container image for one accelerator backend (CUDA, ROCm, oneAPI, CPU, ...) is really
> that: builds images per backend from one specification, and reads wheels and images for shared
> libraries and device code of other vendors.
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the file when the pages are."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}


def write(app: Sphinx, error: Exception | None) -> None:
    """A line for each page: title, address of its source, first sentence."""
    if error is not None or app.builder.name != "html":
        return
    sections: dict[str, list[str]] = {}
    for name in sorted(app.env.found_docs - {"index"}):
        tree = app.env.get_doctree(name)
        title = app.env.titles[name].astext()
        paragraph = next(iter(tree.findall(nodes.paragraph)), nodes.paragraph())
        sentence = " ".join(paragraph.astext().split()).partition(". ")[0].rstrip(".")
        folder = name.rpartition("/")[0] or "guides"
        sections.setdefault(folder, []).append(f"- [{title}](_sources/{name}.md.txt): {sentence}")
    lines = [HEAD]
    for folder, pages in sections.items():
        lines += [f"## {folder.capitalize()}", "", *pages, ""]
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
