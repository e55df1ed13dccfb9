"""Pose files of Project Aria (MPS)."""
