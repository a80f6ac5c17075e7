"""Docker with BuildKit: built by `docker buildx bake`, run and inspected by the Docker SDK."""
