"""`audit`: judge locked wheels before any of them is downloaded."""
