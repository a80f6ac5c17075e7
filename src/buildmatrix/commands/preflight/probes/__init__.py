"""Programs for the interpreter of an image: one file each, standard library first."""
