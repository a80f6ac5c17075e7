"""Run one command several times in the same container with a time limit, and time the runs.

Runs inside an image, by the image's Python, 3.8 or newer; standard library only. See
`commands.preflight.protocol` for the output.
"""

from __future__ import annotations

import os
import time

from buildmatrix.commands.preflight.probes.bounded import (
    Emit,
    compute_memory_limit,
    read_options,
    report,
    run,
)

#: Prefix of a result in the output of a command.
RESULT = "BUILDMATRIX_RESULT "


def main() -> None:
    """Repeat the command until one run fails, and report each."""
    request = read_options()
    command: list[str] = request["command"]

    def execute(emit: Emit) -> None:
        # This program is replaced by the command, whose exit code shows its end.
        emit(done=True)
        os.execvp(command[0], command)  # noqa: S606 - the user's own

    for number in range(request["times"]):
        began = time.monotonic()
        ended = run(execute, request["seconds"], compute_memory_limit())
        seconds = time.monotonic() - began
        results = [line for line in ended.output.splitlines() if line.startswith(RESULT)]
        state = "failed" if ended.why else "passed"
        result = results[-1] if results else ""
        report(str(number), state, ended.account, seconds, result=result)
        if ended.why:
            return


if __name__ == "__main__":
    main()
