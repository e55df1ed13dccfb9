"""Clients that answer requests, all behind `registry.Client`."""
