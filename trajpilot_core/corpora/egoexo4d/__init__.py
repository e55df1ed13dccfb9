"""Ego-Exo4D: atomic descriptions, keysteps and basketball."""
