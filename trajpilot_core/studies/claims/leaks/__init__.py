"""Leak checks: nothing in a world or a training gives an answer away."""
