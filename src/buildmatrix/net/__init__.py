"""Requests to servers, which are untrusted: bounded in time and size.

`requests` has the one HTTP client, `machine_indexes` the package indexes that this machine is
configured for; `registry_client` and the modules beside it read and write images by the OCI
distribution API 1.1. URLs and image names enter, bytes and documents leave; a password goes only to
the server that it is for.
"""
