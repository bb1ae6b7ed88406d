"""Values and gradients beside PyTorch's, where it is installed."""
