"""What builds leave on this machine: the state folder, the journal, the layers of images."""
