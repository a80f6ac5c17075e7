"""A headless Chromium, driven by Playwright: what a page asks for and complains about is kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import playwright.sync_api as playwright
from axe_playwright_python.base import AXE_SCRIPT

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")

#: Which letters there are; fonts that a machine has beside them change nothing.
_FONTS = Path(__file__).with_name("fonts.conf")
_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Letters come out alike on every machine: no hinting, no colored edges, one color space.
_OPTIONS = (
    "--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
    "--disable-component-update --font-render-hinting=none --disable-lcd-text "
    "--force-color-profile=srgb --hide-scrollbars"
)

#: Milliseconds after which a browser hangs, however busy the machine.
_HANGS_MS = 300_000


def find_browser() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@dataclass
class Page:
    """One open page. Every request that it made and everything that it logged is kept."""

    view: playwright.Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.view.on("request", lambda request: self.requests.append(request.url))
        self.view.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.view.on("console", self._hear)

    def _hear(self, message: playwright.ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def run(self, script: str, argument: object = None) -> Any:
        """The value of an expression in the page, or of a function of `argument`."""
        return self.view.evaluate(script, argument)

    def wait(self, condition: str) -> None:
        """Wait until an expression is true.

        Playwright's own way evaluates it again from within the page, which the policy stops.
        """
        self.run(
            f"""new Promise((done) => {{
              const look = () => {{ if ({condition}) done(); else setTimeout(look, 20); }};
              look();
            }})"""
        )

    def violations(self, *rules: str) -> list[str]:
        """What axe-core finds wrong with the page by these rules, or by all: rule and element."""
        self.run(AXE_SCRIPT)
        found = self.run(
            """(rules) => axe.run({
                resultTypes: ['violations'], ...(rules.length && {runOnly: rules}),
              }).then((result) => result.violations)""",
            list(rules),
        )
        return [
            f"{violation['id']}: {node['html'][:200]}: {node['failureSummary']}"
            for violation in found
            for node in violation["nodes"]
        ]


@contextmanager
def started(path: str) -> Iterator[playwright.Browser]:
    """The browser, for many pages; it ends with the block."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path,
            args=_OPTIONS.split(),
            timeout=_HANGS_MS,
            env={**os.environ, "FONTCONFIG_FILE": str(_FONTS)},
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: playwright.Browser,
    path: Path,
    *,
    theme: Theme = "light",
    width: int = 1280,
    scale: float = 1,
    scripts: bool = True,
    fragment: str = "",
) -> Iterator[Page]:
    """A page, as a reader with this theme and a window of this width in pixels has it."""
    context = browser.new_context(
        color_scheme=theme,
        viewport={"width": width, "height": 800},
        device_scale_factor=scale,
        java_script_enabled=scripts,
        reduced_motion="reduce",
        locale="en-US",
        timezone_id="UTC",
    )
    try:
        context.set_default_timeout(_HANGS_MS)
        page = Page(context.new_page())
        page.view.goto(path.as_uri() + fragment)
        yield page
    finally:
        context.close()
