"""Programs for the interpreter of an image, one file each, mostly standard library."""
