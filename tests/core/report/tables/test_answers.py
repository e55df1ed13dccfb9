"""Answers of vision-language models in the report: rates, the subset, and rejects of their stages."""

from pathlib import Path

from report_page import CFG, Reader
from synthetic_results import Kept, Tables

from deployments.recipes import RECIPES
from schemas.arrow import table_of
from schemas.rejects import Reject, RejectCode, reject
from schemas.vlm import EndpointScore, VlmConfig, VlmCount
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.stages import STAGES
from trajpilot_core.stages.report import completed


def count(variant: str) -> VlmCount:
    parts = {"n_failed": 10, "n_repaired": 4, "n_labels": 90, "n_exact": 45, "n_projected": 27, "n_blank": 18}
    return VlmCount(variant=variant, horizon=3, n_answers=40, **parts)


def test_a_run_that_asks_for_them_shows_answers_rejects_and_that_it_is_a_sample(few: Tables, page: Reader) -> None:
    asked = RECIPES["demo"]().replace(vlm=VlmConfig(rows=("qwen_zs",), windows_per_horizon=20))
    own, stage = completed(asked), STAGES["report"].under(asked)
    assert {"vlm_counts", "endpoint_cache", "vlm.rejects", "vlm_rows.rejects"} <= set(stage.reads)
    assert not {"vlm_counts", "vlm.rejects"} & set(STAGES["report"].under(RECIPES["demo"]()).reads)
    lost = [reject("vlm", RejectCode.VIDEO_MISSING, "egoexo4d:take00001", "frame 12 cannot be decoded")]
    scores = [EndpointScore(row="R@1", count=3, percentage=30.0, adapter="")]
    more = {
        "vlm_counts": table_of(VlmCount, [count("qwen_zs")]),
        "endpoint_cache": table_of(EndpointScore, scores),
        "vlm.rejects": table_of(Reject, lost),
        "vlm_rows.rejects": table_of(Reject, []),
    }
    held, made = Tables({**few.tables, **more}), Kept()
    cfg = CFG.replace(further=own.further, windows_per_horizon=own.windows_per_horizon)
    stage.run(Work(held, cfg, (), made, Runtime("/nowhere", "cpu", 1, Path("unused"))))
    shown = made.documents["report.html"].decode()
    for said in ("How the answers of vision-language models were parsed", "at most 20 of each horizon"):
        assert said in shown
    assert "frame 12 cannot be decoded" in shown
    assert "Qwen" in shown.split('<section id="answers">')[1].split("</section>")[0]
    assert "do not compare its numbers with those of all windows" in shown
    assert "a sample: at most" not in "".join(page.text)
    assert not any(attributes.get("id") == "answers" for _, attributes in page.tags)
