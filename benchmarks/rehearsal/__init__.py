"""The rehearsal of the paper's scale: a store of true shape, every stage after features through the ordinary executor.

Run: `python -m benchmarks.rehearsal` from the checkout (`make rehearse`); `--share 0.05` is a twentieth of it.
"""
