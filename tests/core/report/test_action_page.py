"""The report of a corpus without plans: the tables of the probe, and nothing published next to simulated figures."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kitchens_fixture import SMALL, Kitchens, kitchens, probed

from schemas.arrow import rows_of, table_of
from schemas.config import CompletedReport, PipelineConfig, RunOptions
from schemas.events import ProbeConfig, ProbeScore
from schemas.features import released_note
from schemas.rejects import Reject
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.key import producers
from trajpilot_core.engine.stage import Stage, Work
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS, ActionClips, score
from trajpilot_core.report.action_page import build_alone, classes_of, fixed_metrics, metric_columns
from trajpilot_core.report.committed import committed_under
from trajpilot_core.report.summary import summary
from trajpilot_core.stages import EVERY_STAGE as STAGES

ALONE = [STAGES[name] for name in ("ingest", "features", "probe")]
CFG = CompletedReport(corpus="epic_kitchens")


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Kitchens:
    """A probe of two seeds and one epoch, and what else the report reads."""
    found = probed(kitchens(), tmp_path_factory.mktemp("probe"), SMALL.replace(epochs=1, seeds=(0, 1)))
    for stage in ALONE:
        found.tables[f"{stage.name}.rejects"] = table_of(Reject, [])
    return found


def documents(memory: Kitchens, corpus: str) -> dict[str, bytes]:
    """The documents, of videos of that corpus."""
    takes = sorted(set(memory.tables["segments"]["take_id"].to_pylist()))
    rows = [{"take_id": take, "corpus": corpus, "split": take.split(":")[1].split("_")[0]} for take in takes]
    memory.tables["takes"] = pa.Table.from_pylist(rows)
    return build_alone(memory, CFG, ALONE)


def test_the_page_has_both_label_spaces_every_set_and_the_checks(memory: Kitchens) -> None:
    found = documents(memory, "epic")
    page, written = found["report.html"].decode(), json.loads(found["report.json"])
    for words in ("as the challenge scores", "as V-JEPA 2 scores", "unseen", "tail", "Action Acc.", "another protocol"):
        assert words in page, words
    assert [table["title"] for table in written["tables"]] == [
        "Anticipation, every tested clip, as the challenge scores",
        "Anticipation, clips whose pair of verb and noun training has, as V-JEPA 2 scores",
    ]
    assert len(written["tables"][0]["rows"]) == 3 * 2
    judged = {row["check"]: row["verdict"] for row in written["judgements"]}
    weak = judged.pop("trained: row probe") == "undertrained"
    assert set(judged.values()) == {"holds"}
    assert ("attentive probe†" in page) == weak
    assert b"tabular" in found["metrics.tex"]
    assert documents(memory, "epic") == found


def test_published_numbers_stand_in_a_table_of_their_own_and_never_on_a_simulated_page(memory: Kitchens) -> None:
    recorded = documents(memory, "epic")["report.html"].decode()
    assert "64.07" in recorded
    simulated = documents(memory, "simulated")
    page = simulated["report.html"].decode()
    assert "64.07" not in page
    assert "SIMULATED" in page
    assert "in the file layout of EPIC-KITCHENS-100" in page
    assert simulated["metrics.tex"].startswith(b"% SIMULATED")


def test_released_features_are_named_and_stand_next_to_nothing_published(memory: Kitchens) -> None:
    documents(memory, "epic")
    found = build_alone(memory, CFG.replace(released="epic_slowfast"), ALONE)
    page, note = found["report.html"].decode(), released_note("epic_slowfast")
    assert "trained on the action labels that are predicted here" in note
    assert note in page
    assert "TrajPilot on EPIC-KITCHENS-100, released features epic_slowfast" in page
    assert "rows of released features" in page
    assert "64.07" not in page
    assert note in found["metrics.tex"].decode()


def test_the_page_says_which_tokens_the_probe_read(memory: Kitchens) -> None:
    pages = [
        build_alone(memory, CFG.replace(has_every_patch=every), ALONE)["report.html"].decode()
        for every in (False, True)
    ]
    assert ["another protocol than that of the published" in page for page in pages] == [True, False]
    assert ["every patch of a clip and those of one predicted" in page for page in pages] == [False, True]


def test_the_report_reads_what_the_corpus_has() -> None:
    report, config = STAGES["report"], PipelineConfig()
    assert report.under(config) is report
    alone = report.under(config.replace(ingest=config.ingest.replace(corpus="epic_kitchens")))
    writer = producers(STAGES)
    assert {writer[entry] for entry in alone.reads} == {"ingest", "features", "probe"}
    assert not {"probe", "planners"} & {writer[entry] for entry in report.reads}


def test_a_metric_that_cannot_be_anything_else_says_so_wherever_the_table_is_printed(memory: Kitchens) -> None:
    """Training has four verbs and five nouns, and a recall counts the best five."""
    found = documents(memory, "simulated")
    config = PipelineConfig().replace(ingest=PipelineConfig().ingest.replace(corpus="epic_kitchens"))
    committed: Any = SimpleNamespace(
        config=config,
        table=lambda _, name: memory.tables[name],
        about=lambda _, name: memory.models(name).about,
        warning=lambda: "",
    )
    found["the UI"] = summary(committed, "report.html").encode()
    for name, content in found.items():
        assert b"Verb (fixed: 4 verbs, the best 5 count)" in content, name
        assert b"Noun (fixed: 5 nouns, the best 5 count)" in content, name
        assert b"Action (fixed" not in content, name
    assert b"every row has the same value, whatever it answers" in found["report.html"]
    verbs = {one.value for one in rows_of(ProbeScore, memory.tables["probe_scores"]) if one.metric == "Verb"}
    assert verbs == {100.0}, "probe and floor, every set, every seed"


def test_it_is_fixed_exactly_where_no_ranking_gives_another_value() -> None:
    nothing = np.zeros(40, dtype=bool)
    for n_classes, differ in ((4, False), (5, False), (6, True)):
        rng = np.random.default_rng(0)
        classes = rng.integers(n_classes, size=40)
        clips = ActionClips(classes, classes, nothing, nothing, nothing, nothing)
        rankings = [np.stack([rng.permutation(n_classes)[:5] for _ in classes]) for _ in range(20)]
        values = {score(EPIC_METRICS["Verb"], clips, {"verb": ranking}).value for ranking in rankings}
        assert (len(values) > 1) == differ
        assert ("Verb" not in fixed_metrics({"verb": n_classes})) == differ
        assert (metric_columns({"verb": n_classes})[0] == "Verb") == differ


def test_the_number_of_classes_is_read_from_what_the_probes_say_of_themselves(tmp_path: Path) -> None:
    def run(work: Work) -> None:
        work.sink.models("probe_models", {"classes": json.dumps({"verb": [3, 9], "noun": [1], "action": [4, 5, 6]})})
        work.sink.count(1, 1)

    stage = Stage("probe", (), ("probe_models",), ProbeConfig, run, 1, "")
    where = RunOptions(root=str(tmp_path), device="cpu")
    execute(stage, PipelineConfig(), where, {"probe": stage})
    about = committed_under(PipelineConfig(), where).about("probe", "probe_models")
    assert classes_of(about) == {"verb": 2, "noun": 1, "action": 3}
    assert classes_of({"config": "{}"}) == {}, "no probe was trained"
