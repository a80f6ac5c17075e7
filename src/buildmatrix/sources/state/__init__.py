"""State of builds on this machine: the state folder, the journal, layers of images."""
