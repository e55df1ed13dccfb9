"""A new stage is a file, its import and its line in the list: everything else follows from the list.

The packages are copied, a stage is added to the copy, and a process of its own looks at what there is.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import CHECKOUT

PACKAGES = ("schemas", "trajpilot_core", "tasks", "flows", "deployments")
LIST = Path("trajpilot_core") / "stages" / "__init__.py"
STAGE = '''"""Census: how many names the file census.txt holds."""

from pathlib import Path

import pyarrow as pa

from schemas.config import EvaluationConfig
from trajpilot_core.engine.stage import Source, Stage, Work
from trajpilot_core.store.reading import Inputs


def sources(inputs: Inputs, config: EvaluationConfig, data_root: str) -> list[Source]:
    """Name the file."""
    return [Source("", files=("census.txt",))]


def run(work: Work[EvaluationConfig]) -> None:
    """Count the names."""
    names = (Path(work.runtime.data_root) / "census.txt").read_text().split()
    work.sink.table("census", pa.table({"name": names}))
    work.sink.count(len(names), len(names))


STAGE = Stage(
    name="toy_census",
    reads=(),
    writes=("census",),
    config=EvaluationConfig,
    run=run,
    version=1,
    summary="Names -> their number",
    sources=sources,
    uses_gpu=True,
)
'''
LOOK = """
import json, logging, sys
from deployments.settings import prefect_without_noise
prefect_without_noise()
from prefect.utilities.callables import parameter_schema
from deployments import declared, deployed
from flows import stages
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.planning.plan import plan, status
from trajpilot_core.stages import EVERY_STAGE, STAGES

config, name = PipelineConfig(), "toy_census"
run = RunOptions(root=sys.argv[1], data_root=sys.argv[2], device="cpu")
lines = []
told = logging.Handler()
told.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("trajpilot").addHandler(told)
before = {row.stage: row.state for row in plan(STAGES, config, run)}
made = stages.toy_census(config, run)
again = execute(STAGES[name], config, run, STAGES)
options = parameter_schema(deployed.full_pipeline).model_dump()["definitions"]["RunOptions"]["properties"]
print(json.dumps({
    "stages": list(EVERY_STAGE), "before": before, "entry": made.stage, "lines": lines, "cached": again.cached,
    "rows": again.n_out, "after": {row.plan.stage: row.plan.state for row in status(STAGES, config, run)},
    "form": [options["only"]["items"]["enum"], options["from_stage"]["anyOf"][0]["enum"]],
    "deployed": next(item for item in declared.prefect_file(config)["deployments"] if item["name"] == "toy-census"),
    "flow": deployed.toy_census.name, "report": list(STAGES["report"].reads),
}))
"""


def looked(copy: Path, data: Path) -> dict[str, Any]:
    """What a process finds in a copy of the packages that has one stage more."""
    data.mkdir()
    for name in PACKAGES:
        shutil.copytree(CHECKOUT / name, copy / name)  # with what Python compiled: it takes ten seconds
    (copy / LIST.parent / "toy_census.py").write_text(STAGE)
    text = (copy / LIST).read_text()
    text = text.replace("    text_bank,\n", "    text_bank,\n    toy_census,\n", 1)
    text = text.replace("    features.STAGE,\n", "    features.STAGE,\n    toy_census.STAGE,\n", 1)
    (copy / LIST).write_text(text)
    (data / "census.txt").write_text("ann bob eve")
    env, command = {**os.environ, "PYTHONPATH": str(copy)}, [sys.executable, "-c", LOOK, str(data / "root"), str(data)]
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.usefixtures("prefect_server")
def test_a_new_stage_is_planned_and_runs_and_is_in_forms_and_report_and_has_a_flow_and_a_deployment(
    tmp_path: Path,
) -> None:
    answer = looked(tmp_path / "checkout", tmp_path / "data")
    assert answer["stages"].index("toy_census") == answer["stages"].index("features") + 1
    assert answer["before"]["toy_census"] == "missing"
    assert (answer["entry"], answer["cached"], answer["rows"]) == ("toy_census", True, 3)
    assert answer["after"]["toy_census"] == "fresh"
    assert answer["after"]["ingest"] == "missing"
    own = [line for line in answer["lines"] if line.startswith("toy_census")]
    assert own[0].endswith("started"), "Prefect attaches its handler to our logger and sets no level: the import does"
    assert "computed, 3 rows in, 3 out" in own[-1]
    assert answer["form"] == [answer["stages"], answer["stages"]]
    assert answer["flow"] == "toy-census"
    job = yaml.safe_load((CHECKOUT / "deployments" / "prefect.yaml").read_text())["definitions"]["job"]
    assert answer["deployed"] == {
        "name": "toy-census",
        "entrypoint": "deployments/deployed.py:toy_census",
        "description": "Names -> their number",
        "tags": ["trajpilot", "stage"],
        "work_pool": {"name": "trajpilot-gpu", "work_queue_name": "default", "job_variables": job},
    }
    assert "toy_census.rejects" in answer["report"]
