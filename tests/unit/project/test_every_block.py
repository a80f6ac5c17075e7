"""Every block of the README and the pages is held by something, or says why nothing can."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath

from document_blocks import BLOCKS, MECHANISMS, PAGES, ROOT, DocumentBlock, blocks_of

#: Pages all of whose blocks of a language are held without a word: pattern and language → test.
WHOLE = {
    ("docs/tutorials/*", "console"): "tests/integration/test_tutorials.py",
    ("docs/*", "yaml"): "tests/unit/project/test_ci_documentation.py",
    ("docs/ci/*", "yaml"): "tests/unit/project/test_ci_documentation.py",
    ("docs/ci/*", "groovy"): "tests/unit/project/test_ci_documentation.py",
    ("*", "toml"): "tests/unit/project/test_specifications_in_documents.py",
    # Sphinx reads them, and its warnings are errors (`.ci/run`).
    ("docs/*", "{toctree}"): "docs/conf.py",
}
#: What a block may need that neither a test nor its stand-in can be.
NEEDS = (
    "a cluster",
    "a public registry",
    "a registry and clones",
    "clones of repositories",
    "the network",
)


def holders(block: DocumentBlock) -> list[str]:
    """What holds a block: by its comment, else by its page and language."""
    if block.marker:
        return [kind for kind in MECHANISMS if block.marked(kind)]
    return [
        test
        for (pattern, language), test in WHOLE.items()
        if block.language == language and PurePosixPath(block.document).match(pattern)
    ][:1]


def test_every_block_is_held() -> None:
    loose = [block.place for block in BLOCKS if not holders(block)]
    assert not loose, "nothing runs, compares or parses " + ", ".join(loose)


def test_the_tests_that_are_named_are_there_and_read_the_page() -> None:
    for test in WHOLE.values():
        assert (ROOT / test).is_file()
    for block in BLOCKS:
        if match := block.marked("checked by"):
            text = (ROOT / match["test"]).read_text()
            assert PurePosixPath(block.document).name in text, f"{block.place}: {match['test']}"


def test_what_does_not_run_says_why() -> None:
    for block in BLOCKS:
        if match := block.marked("not run"):
            assert match["reason"].startswith(NEEDS), block.place
            assert len(match["reason"]) > 25, f"{block.place}: what for?"


def test_few_blocks_run_nowhere() -> None:
    kinds = Counter(kind for block in BLOCKS for kind in holders(block))
    assert kinds["not run"] <= len(BLOCKS) / 20, kinds


def test_no_fence_is_overlooked() -> None:
    for path in PAGES:
        fences = re.findall(r"^\s*(?:```|~~~)", path.read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(blocks_of(path)), path


def test_a_block_without_a_word_would_be_seen() -> None:
    assert holders(DocumentBlock("docs/a.md", 1, "", "", "$ buildmatrix scan x\n")) == []
    assert holders(DocumentBlock("docs/a.md", 1, "json", "printed by hand", "{}\n")) == []
    assert holders(DocumentBlock("docs/a.md", 1, "sh", "not run: hard", "x\n")) == []
