"""One training loop and the tensors that it reads."""
