"""What a lock or a requirements file would install, for each target."""
