"""`audit`: what locked wheels would bring in, said before any of them is downloaded."""
