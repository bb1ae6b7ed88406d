"""Complete programs built on the public names of tinygrad_sparse."""
