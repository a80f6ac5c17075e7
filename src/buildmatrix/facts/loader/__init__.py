"""Which library ld.so finds for each NEEDED entry of a tree."""
