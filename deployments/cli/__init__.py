"""The trajpilot command."""
