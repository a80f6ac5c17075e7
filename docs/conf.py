"""How the site of the documentation is built: `sphinx-build -W docs build/docs`."""

import sys
from pathlib import Path

import buildmatrix

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "buildmatrix"
author = "the buildmatrix project"
version = release = buildmatrix.__version__
extensions = ["myst_parser", "sphinx_copybutton", "reference", "llms"]
exclude_patterns = ["_extensions", "_build"]

# Headings are link targets, as on GitHub, where the same pages are read.
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = f"buildmatrix {version}"
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "source_repository": "https://github.com/buildmatrix/buildmatrix",
    "source_branch": "main",
    "source_directory": "docs/",
}
copybutton_prompt_text = "$ "

man_pages = [
    (
        "reference/commands",
        "buildmatrix",
        "prove that a container image is for one accelerator backend",
        [author],
        1,
    )
]
