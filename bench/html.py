"""What HTML pages cost: to write, and to open in a browser.

    python bench/html.py                # 10,000 findings, each with a cause of its own
    python bench/html.py --findings 1000 --browser /usr/bin/chromium

`write`   processor seconds of buildmatrix.
`paint`   seconds until something is shown, `load` until everything is; medians of the runs, as a
          person waits. They mean nothing on a machine that does other work.
`work`    processor seconds of the page's main thread: parsing, style, layout and script.

The findings are the worst case: no two of them can be read as one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/pages"), str(ROOT / "tests/unit/commands/why")]

from browser import find_browser, started  # noqa: E402
from page_cases import many, matrix  # noqa: E402
from playwright.sync_api import Browser  # noqa: E402

from buildmatrix.reports import formats  # noqa: E402
from buildmatrix.reports.formats import Destination, find_format  # noqa: E402

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
PAINTED = """new Promise((done) => new PerformanceObserver((list, observer) => {
  if (list.getEntriesByName('first-contentful-paint').length) { observer.disconnect(); done(); }
}).observe({type: 'paint', buffered: true}))"""
LOAD = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def opened(browser: Browser, path: Path) -> tuple[float, float, float, int]:
    """Seconds of paint, load and work, and the number of elements."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(path.as_uri())
        page.evaluate(PAINTED)
        metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
        return (
            page.evaluate(PAINT) / 1000,
            page.evaluate(LOAD) / 1000,
            metrics["TaskDuration"],
            page.evaluate("document.querySelectorAll('*').length"),
        )
    finally:
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--findings", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--browser", default=find_browser())
    arguments = parser.parse_args()
    reports = {
        "20 targets": matrix(("py310", "py311", "py312", "py313", "py314")),
        f"{arguments.findings} findings": many(arguments.findings),
    }
    with tempfile.TemporaryDirectory() as folder, started(arguments.browser) as browser:
        for name, report in reports.items():
            before = time.process_time()
            text = find_format(formats.RUN, "html").render(report, Destination())
            write = time.process_time() - before
            path = Path(folder) / "report.html"
            path.write_text(text, encoding="utf-8")
            runs = [opened(browser, path) for _ in range(arguments.runs)]
            paint, load, work = (statistics.median(run[n] for run in runs) for n in range(3))
            print(
                f"{name:16} {len(text.encode()) / 1e6:6.2f} MB {runs[0][3]:7} elements  "
                f"write {write:.2f} s  paint {paint:.2f} s  load {load:.2f} s  work {work:.2f} s"
            )


if __name__ == "__main__":
    main()
