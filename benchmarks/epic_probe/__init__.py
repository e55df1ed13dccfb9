"""V-JEPA 2's attentive probe, focal loss and predictor next to ours: the numbers that the tests compare with.

Run: `python -m benchmarks.epic_probe.fixtures --original FOLDER` (renews tests/data/epic_probe). FOLDER is a checkout
of the original.
"""
