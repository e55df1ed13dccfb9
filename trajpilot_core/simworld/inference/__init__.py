"""Exact inference on the world's own generative model."""
