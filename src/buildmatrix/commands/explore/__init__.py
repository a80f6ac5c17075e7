"""`explore`: a SOURCE on the screen of a terminal, by layer, distribution, library and vendor."""
