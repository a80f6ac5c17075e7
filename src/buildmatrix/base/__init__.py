"""Parts that know nothing of images: errors, text, threads, processes, files of settings."""
