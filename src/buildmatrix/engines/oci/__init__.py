"""Images without a daemon and without root, assembled from the Dockerfiles of our templates."""
