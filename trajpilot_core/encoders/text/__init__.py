"""Text encoders: EgoVLPv2, transformers, and the demo's bag of words."""
