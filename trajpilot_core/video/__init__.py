"""Frames of a video, addressed by time."""
