"""Requests to servers: one HTTP client, and registries of images."""
