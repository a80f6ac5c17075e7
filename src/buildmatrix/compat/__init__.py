"""Driver, runtime and GPU architecture arithmetic."""
