"""Images without a daemon and without root: what a Dockerfile of ours says, as blobs."""
