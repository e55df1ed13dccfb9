"""Runs of the toys' vectors in a process of its own, for the tests of two runs at the same time.

Each line of the input names a root, a corpus and a log, and optionally a file BEGUN. The log gets a line for the
computation and one for the outcome; then `done` is printed. With BEGUN the computation makes that file and never ends.
"""

import logging
import sys
import time
from dataclasses import replace
from pathlib import Path

from toy_stages import TOYS, options, read_vectors_of_takes

from schemas.config import PipelineConfig
from trajpilot_core.stages.execute import execute
from trajpilot_core.stages.stage import Work


def run_once(root: str, corpus: str, log: str, begun: str = "") -> None:
    """Run the stage once."""

    def say(line: str) -> None:
        with Path(log).open("a") as out:
            out.write(f"{line}\n")

    def computing(work: Work) -> None:
        say(f"computes {len(work.pending)}")
        read_vectors_of_takes(work)
        if begun:
            Path(begun).touch()
            time.sleep(3600)
        time.sleep(0.05)  # the other one is sure to find the work half done

    stages = {**TOYS, "toy_vectors": replace(TOYS["toy_vectors"], run=computing)}
    outcome = execute(stages["toy_vectors"], PipelineConfig(), options(Path(root), Path(corpus)), stages)
    say("found" if outcome.cached else "made")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    for line in sys.stdin:
        run_once(*line.split())
        sys.stdout.write("done\n")
        sys.stdout.flush()
