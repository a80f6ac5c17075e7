"""HTTP client for untrusted servers: bounded in time and size, credentials sent to their origin."""
