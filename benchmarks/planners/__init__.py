"""Our planners next to the originals: ratios of time, and the numbers that the tests compare with.

Run: `python -m benchmarks.planners --original FOLDER` (ratios; one process, one thread) or
`python -m benchmarks.planners.fixtures --original FOLDER` (renews tests/data/planners). FOLDER holds checkouts of the
originals under the names SCHEMA, PDPP and ViterbiPlanNet.
"""
