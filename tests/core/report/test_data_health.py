"""What was lost on the way, and what every stage counts."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from report_page import CFG, Reader
from synthetic_results import Kept, Tables

from schemas.arrow import table_of
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.engine.stage import Output, Runtime, Work
from trajpilot_core.report import health
from trajpilot_core.stages import REPORTED, STAGES
from trajpilot_core.stages.report import report_on


def test_every_reject_is_shown_with_meaning_action_and_counts(page: Reader) -> None:
    text = "".join(page.text)
    for wanted in (
        "TRAJ_GAP",
        "tracking was lost for longer than the limit",
        "no pose for 0.31 s",
        "TS_REORDERED",
        "UNSURE",
    ):
        assert wanted in text


def test_a_window_that_three_stages_miss_is_lost_once(inputs: Tables) -> None:
    def lost(stage_name: str, windows: tuple[str, ...]) -> pa.Table:
        code = RejectCode.WINDOW_INCOMPLETE
        rows = [reject(stage_name, code, "egoexo4d:take00001", f"window {w}: no feature for s") for w in windows]
        return table_of(Reject, rows)

    held = {"predictor": lost("predictor", ("t:h3:0000", "t:h3:0001")), "scorer": lost("scorer", ("t:h3:0001",))}
    held["evaluation"] = lost("evaluation", ("t:h3:0001", "t:h4:0000"))
    assert health.lost_units(held) == {"predictor": 2, "scorer": 0, "evaluation": 1}
    kept = {stage: t for stage, t in inputs.tables.items() if stage.endswith(".rejects")}
    assert sum(health.lost_units(kept).values()) == sum(sum(t["n_units"].to_pylist()) for t in kept.values())


def test_a_stage_says_itself_what_the_report_counts_of_it(inputs: Tables) -> None:
    toy = replace(STAGES["features"], name="toy", writes=("toys",), output=Output("toys", "toys", ("split",)))
    more = {"toys": inputs.tables["segments"], "toy.rejects": inputs.tables["trajectories.rejects"]}
    stage, kept = report_on((*REPORTED, toy)), Kept()
    assert {"toys", "toy.rejects"} <= set(stage.reads)
    held = Tables({**inputs.tables, **more})
    stage.run(Work(held, CFG, (), kept, Runtime("/nowhere", "cpu", 1, Path("unused"))))
    n, lost = more["toys"].num_rows, more["toy.rejects"].num_rows
    cells = "".join(f'<td class="num">{count}</td>' for count in (n + lost, lost, n))
    assert f"<tr><td>toy</td><td>toys</td>{cells}" in kept.documents["report.html"].decode()
