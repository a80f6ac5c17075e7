"""A model of ld.so: the library for each NEEDED entry of a tree, and symbols that stay unbound."""
