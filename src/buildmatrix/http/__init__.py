"""HTTP with servers of strangers: bounded in time and size, credentials kept to their origin."""
