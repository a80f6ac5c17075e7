"""Report of a preflight: rungs, their checks, and who has to run the rest."""
