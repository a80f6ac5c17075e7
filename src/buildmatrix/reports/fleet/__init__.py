"""Report of `fleet` about many images or repositories: data, and its formats."""
