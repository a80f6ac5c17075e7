"""`build`: lock, audit, render, build, scan, smoke, report, push."""
