"""`inspect`: facts of one file, and contents of a tree."""
