"""Planning tensors, chains of models, and models of this and of other runs."""
