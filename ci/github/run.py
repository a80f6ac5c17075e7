"""Run buildmatrix as a step of `action.yml`: summary, annotations, and its exit code.

Reads INPUT_COMMAND, INPUT_ARGS, INPUT_SPEC, INPUT_SUMMARY and INPUT_ANNOTATIONS, which are data
and never part of a script. Says in GITHUB_OUTPUT the `exit-code`, and where `report`, `sarif` and
`markdown` lie.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = ("audit", "build", "scan")
#: docs/contract.md, "Exit codes".
MEANINGS = {
    2: "the arguments or the specification are wrong",
    3: "something could not be read, reached or resolved",
    4: "the build failed",
    5: "an engine or another component is missing",
    70: "a defect of buildmatrix",
    130: "it was interrupted",
}
#: Bytes that GitHub takes for the summary of one step are 1 MiB.
MOST = 1024 * 1024 - 4096


def main() -> int:
    """Run the command; its exit code."""
    command = os.environ["INPUT_COMMAND"]
    if command not in COMMANDS:
        print(f"::error::command {command!a} is none of {', '.join(COMMANDS)}")
        return 2
    try:
        more = shlex.split(os.environ["INPUT_ARGS"])
    except ValueError as error:
        print(f"::error::args cannot be read: {error}")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="report-", dir=os.environ["RUNNER_TEMP"]))
    files = {
        "report": ("json", folder / "report.json"),
        "sarif": ("sarif", folder / "report.sarif"),
        "markdown": ("markdown", folder / "report.md"),
        "lines": ("concise", folder / "report.txt"),
    }
    spec = os.environ["INPUT_SPEC"]
    arguments = ["-f", spec] if spec else []
    arguments += [command, "--format", "table"]
    for name, path in files.values():
        arguments += ["--format", f"{name}={path}"]
    # Isolated: no module that lies in the checkout is taken for one of ours.
    python = [sys.executable, "-I", "-m", "buildmatrix"]
    code = subprocess.run([*python, *arguments, *more], check=False).returncode
    if code < 0:
        code = 128 - code
    markdown = files["markdown"][1]
    if not markdown.exists():
        # A comment of an earlier run would go on to say what was true then.
        meaning = MEANINGS.get(code, "the log says why")
        markdown.write_text(
            f"## buildmatrix {command}\n\n"
            f"**No report: exit code {code}** ({meaning}). The log of the job says more.\n",
            encoding="utf-8",
        )
    if os.environ["INPUT_SUMMARY"] == "true":
        _summarize(markdown)
    if os.environ["INPUT_ANNOTATIONS"] == "true" and files["lines"][1].exists():
        _annotate(files["lines"][1])
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as output:
        output.write(f"exit-code={code}\n")
        for name in ("report", "sarif", "markdown"):
            path = files[name][1]
            output.write(f"{name}={path if path.exists() else ''}\n")
    return code


def _summarize(markdown: Path) -> None:
    text = markdown.read_bytes()
    if len(text) > MOST:
        cut = text[: text.rfind(b"\n", 0, MOST)].decode("utf-8", "ignore")
        text = f"{cut}\n\n</details>\n\nCut here: the summary of a step ends at 1 MiB.\n".encode()
    with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("ab") as summary:
        summary.write(text)


def _annotate(lines: Path) -> None:
    """Print the findings where the runner reads them, one line each."""
    matcher = Path(os.environ["GITHUB_ACTION_PATH"], ".github", "buildmatrix-matcher.json")
    print("::group::Findings, one line for each cause")
    print(f"::add-matcher::{matcher}")
    sys.stdout.write(lines.read_text(encoding="utf-8"))
    print("::remove-matcher owner=buildmatrix::")
    print("::endgroup::", flush=True)


if __name__ == "__main__":
    sys.exit(main())
