"""Requests to servers, which are untrusted: bounded in time and size.

`requests` has the one HTTP client, `machine_indexes` the package indexes that this machine is
configured for; `registry` reads and writes images by the OCI distribution API. URLs and image names
enter, bytes and documents leave; a password goes only to the server that it is for.
"""
