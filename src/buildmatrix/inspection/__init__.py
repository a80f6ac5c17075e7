"""What one file says, told to a person: `buildmatrix inspect`."""
