"""Frozen encoders of video and text."""
