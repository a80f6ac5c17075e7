"""The order of `build`: lock, audit, render, build, scan, smoke, report, push; the journal."""
