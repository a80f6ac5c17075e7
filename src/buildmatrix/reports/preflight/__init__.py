"""What a preflight shows: rungs of a ladder, their checks, and who has to run the rest."""
