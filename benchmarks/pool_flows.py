"""Flows of a stand-in for the stage `predictor`: its trainings sleep, so that what is left is the cost of the engine.

`benchmarks/pool_of_trainings.py` deploys them; TRAININGS and SECONDS come from the file `stand_in.json` of the root's
parent folder, which every worker sees.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from deployments.settings import deployed_place
from schemas.training import PredictorConfig
from trajpilot_core.engine.stage import Inputs, Source, Work
from trajpilot_core.stages import STAGES

SAID = json.loads((Path(str(deployed_place()["root"])).parent / "stand_in.json").read_text())


def sources(inputs: Inputs, config: PredictorConfig, data_root: str) -> list[Source]:
    """Return one source per training, which reads nothing."""
    return [Source(f"final/s{n}/traj") for n in range(SAID["trainings"])]


def sleep(work: Work[PredictorConfig]) -> None:
    """Sleep once per training and leave a model that its name decides."""
    for source in work.pending:
        end = time.monotonic() + SAID["seconds"]
        while time.monotonic() < end:
            time.sleep(0.5)
            work.runtime.progress(0, 1, "sleeps")
        with work.sink.training(source.shard) as share:
            share.model("predictors", source.shard, {"w": np.frombuffer(source.shard.encode(), np.uint8)})
            share.models("predictors", {})
            share.table("predictor_curves", pa.table({"of": [source.shard]}))


def conclude(work: Work[PredictorConfig]) -> None:
    """End the entry."""
    work.sink.models("predictors", {})
    work.sink.count(SAID["trainings"], SAID["trainings"])


STAGES["predictor"] = replace(
    STAGES["predictor"], reads=(), sources=sources, run=sleep, conclude=conclude, uses_gpu=True
)


def __getattr__(name: str) -> Any:
    """Return the flow of the stage or of its groups, made when it is asked for as the deployed ones are."""
    if name == "predictor_group":
        from flows.groups import group_flow

        return group_flow("predictor-group")
    if name == "predictor":
        from deployments import deployed

        return deployed.__getattr__(name)
    raise AttributeError(name)
