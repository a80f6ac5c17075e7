"""What `fleet` says about many images or repositories: data, and its formats."""
