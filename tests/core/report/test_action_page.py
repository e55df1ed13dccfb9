"""The report of a corpus without plans: the tables of the probe, and nothing published next to simulated figures."""

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kitchens_fixture import SMALL, Kitchens, kitchens, probed

from schemas.arrow import table_of
from schemas.config import CompletedReport, PipelineConfig
from schemas.features import released_note
from schemas.rejects import Reject
from trajpilot_core.engine.key import producers
from trajpilot_core.report.action_page import build_alone
from trajpilot_core.report.summary import main_figures, summary
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
    assert b"SIMULATED" in simulated["metrics.tex"]


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


def test_the_summary_has_the_table_and_the_terminal_its_first_metrics(memory: Kitchens) -> None:
    config = PipelineConfig().replace(ingest=PipelineConfig().ingest.replace(corpus="epic_kitchens"))
    committed: Any = SimpleNamespace(config=config, table=lambda _, name: memory.tables[name], warning=lambda: "W")
    text = summary(committed, "report", "x/report.html")
    assert text.startswith("**W**\n\nFull page: x/report.html.")
    assert "| set | row | Verb | Noun | Action |" in text
    title, header, *rows = main_figures(committed, "report")
    assert (title, header.split()) == (
        "Anticipation, every tested clip, as the challenge scores",
        ["set", "row", "Verb", "Noun"],
    )
    assert len(rows) == 3 * 2
