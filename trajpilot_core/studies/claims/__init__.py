"""The claims: simulated worlds, their controls, and verdicts."""
