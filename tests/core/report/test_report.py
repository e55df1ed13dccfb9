"""The report: its numbers agree everywhere, and it is built whatever is missing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from markupsafe import Markup
from report_page import CFG, Reader, with_metrics
from synthetic_results import Kept, Tables, a_metric, built

from schemas.arrow import rows_of, table_of
from schemas.results import CurvePoint, Judgement, Metric
from trajpilot_core.engine.stage import Output, Runtime, Work
from trajpilot_core.methods import METHODS, anticipation, predictors
from trajpilot_core.report.build import GROUPS
from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.drawing.sheets import svg
from trajpilot_core.report.figures import rows
from trajpilot_core.report.figures.curves import training_charts
from trajpilot_core.report.tables.results import Results, TableSpec, absent_rows, all_tables, build_table, results_of
from trajpilot_core.report.tables.table import DAGGER, Value, number
from trajpilot_core.stages import REPORTED, STAGES
from trajpilot_core.stages.report import report_on


def test_the_stage_writes_what_it_declares_and_reads_nothing_else(inputs: Tables, kept: Kept) -> None:
    assert set(kept.documents) == set(STAGES["report"].writes)
    assert set(inputs.asked) <= set(STAGES["report"].reads)
    assert kept.counts == (12, 12)


def test_every_cell_agrees_in_html_json_latex_and_parquet(inputs: Tables, kept: Kept, page: Reader) -> None:
    """100 % of the printed cells, from the metrics table outwards."""
    rows = rows_of(Metric, inputs.tables["metrics"])
    assert json.loads(kept.documents["report.json"])["metrics"] == [m.model_dump(mode="json") for m in rows]
    stored = {
        (m.variant, m.reference or "", m.pooling if m.horizon is None else str(m.horizon), m.metric): m
        for m in rows
        if m.seed is None
    }
    assert len(page.cells) > 1000
    printed = []
    for (_, key), text in page.cells.items():
        m = stored[tuple(key.split("|"))]
        signed = m.reference is not None
        interval = f"[{number(m.low, is_signed=signed)}, {number(m.high, is_signed=signed)}]"
        value = number(m.value, is_signed=signed)
        assert text.replace("▲", "").replace("▼", "").split() == [value, *interval.split()]
        printed.append(value.replace("−", "-"))
    in_latex = latex_values(kept.documents["metrics.tex"].decode().split(r"\label{tab:ceilings}")[0])
    assert sorted(in_latex) == sorted(printed)


def latex_values(text: str) -> list[str]:
    """All values of all tables, in reading order, without the intervals."""
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "Method" not in line]
    cells = [cell for row in rows for cell in row.removesuffix(r"\\").split("&")[2:]]
    found = [re.match(r"\s*(?:\\textbf\{)?((?:\$-\$|\+)?[0-9.]+)", cell) for cell in cells]
    return [value[1].replace("$-$", "-") for value in found if value]


def test_a_number_changed_on_its_way_to_the_page_is_seen_and_equal_inputs_give_equal_bytes(
    inputs: Tables, few: Tables, kept: Kept, page: Reader
) -> None:
    """The planted fault of the test above: one cell of the metrics table differs from the page."""
    other = built(with_metrics(few, lambda m: m.replace(value=m.value + 1) if m.variant == "oracle" else m), CFG)
    changed = Reader(other.documents["report.html"].decode()).cells
    differ = {key for (table, key), text in changed.items() if page.cells[table, key] != text}
    assert differ == {key for _, key in changed if key.startswith("oracle|")} != set()
    assert built(inputs, CFG).documents == kept.documents


def bold(rows: dict[str, float], weak: frozenset[str] = frozenset(), metric: str = "M@1") -> list[str]:
    """The bold rows of a column with these values."""
    made = [a_metric(variant=row, metric=metric, value=v, low=v - 1, high=v + 1) for row, v in rows.items()]
    table = build_table(Results(tuple(made), weak), TableSpec("t", "", [*rows], [metric]))
    return [cell.metric.variant for row in table.rows for cell in row if isinstance(cell, Value) and cell.is_best]


def test_bold_is_the_single_best_row_above_every_floor_that_does_not_see_the_truth() -> None:
    """Never ties as printed, zeros, floors and undertrained rows."""
    assert bold({"no_traj": 9.0, "scorer": 12.0, "majority": 2.0}) == ["scorer"]
    assert bold({"no_traj": 9.0, "scorer": 12.0, "majority": 20.0}, metric="ED") == ["no_traj"]
    assert bold(dict.fromkeys(("no_traj", "endpoint_traj", "scorer", "pool_mean", "top1"), 0.0)) == []
    assert bold({"no_traj": 12.04, "scorer": 12.01}) == []
    assert bold({"no_traj": 9.0, "scorer": 12.0}, frozenset({"scorer"})) == ["no_traj"]
    assert bold({"no_traj": 9.0, "scorer": 12.0, "previous": 12.3}) == []
    assert bold({"no_traj": 9.0, "scorer": 12.0, "knn_labels": 13.0}) == []
    assert bold({"no_traj": 9.0, "oracle": 12.0}) == []


def test_ablations_stand_in_tables_of_their_own_and_every_row_in_one(inputs: Tables) -> None:
    results = results_of(rows_of(Metric, inputs.tables["metrics"]), [])
    tables = {t.id: {row[0].row for row in t.rows} for t in all_tables(results)}
    parts = {one.id for one in METHODS if one.role == "ablation"}
    assert tables["overview"] | tables["ablations"] == set(results.variants())
    assert tables["ablations"] == parts & set(results.variants())
    assert not tables["overview"] & parts
    assert tables["gain-ablations"] <= parts


def test_records_of_the_run_are_tables_of_the_page_and_entries_of_the_json(few: Tables, page: Reader) -> None:
    documents = built(few, CFG).documents
    text, written = documents["report.html"].decode(), json.loads(documents["report.json"])
    for title in ("Distances of segments in the features", "Samplings of the plans", "Shuffled middle"):
        assert title in text
    assert (len(written["samplings"]), len(written["pair_distances"])) == (20, 16)
    assert [(row["horizon"], row["weight"]) for row in written["decoding"]][:3] == [(3, 0.5), (4, 0.5), (5, 1.0)]


def test_simulated_numbers_carry_a_banner_and_no_published_value_and_the_header_names_the_corpus(
    kept: Kept, recorded: Kept, page: Reader
) -> None:
    text = "".join(page.text)
    assert text.count(WARNING) == 1
    assert "Published" not in text
    assert "29.38" not in text
    assert b"SIMULATED WORLD" in kept.documents["metrics.tex"]
    titles = [json.loads(report.documents["report.json"])["title"] for report in (kept, recorded)]
    simulated = "TrajPilot on a simulated world in the file layout of Ego-Exo4D, atomic descriptions"
    assert titles == [simulated, "TrajPilot on Ego-Exo4D, atomic descriptions"]


def test_an_undertrained_model_marks_every_row_that_rests_on_it(inputs: Tables, few: Tables, kept: Kept) -> None:
    judgements = [
        row.replace(verdict="undertrained") if row.check == "trained: final/traj, seed 0" else row
        for row in rows_of(Judgement, inputs.tables["judgements"])
    ]
    weak = results_of(rows_of(Metric, inputs.tables["metrics"]), judgements).undertrained
    own = {"scorer", "oracle", "top1", "pool_mean", "shuffled"}
    parts = {one.id for one in METHODS if one.part_of in own} - {predictors.ORACLE_GOAL_DROPOUT.id}
    parts |= {anticipation.ORACLE_NO_DROPOUT.id}  # the same model, no goal given
    assert weak == own | parts, "and those that take a part away or change it; a goal-dropout twin is another model"
    documents = built(Tables({**few.tables, "judgements": table_of(Judgement, judgements)}), CFG).documents
    for name, mark in (("report.html", DAGGER), ("metrics.tex", r"\dag{}")):
        text = documents[name].decode()
        assert text.count(f"Oracle{mark}") >= 2, "in every table"
        assert f"{mark}: does not count as trained" in text
        assert f"No-Traj{mark}" not in text.replace(f"minus No-Traj{mark}", ""), "a difference, marked for either side"
        assert mark.encode() not in kept.documents[name]


def test_models_of_another_run_and_few_takes_are_among_the_limits(few: Tables, kept: Kept) -> None:
    e_tau, weights = ({"place": "/runs/atomic", "sha256": digit * 64} for digit in "ab")
    made = built(few, CFG.replace(alignment_from=e_tau, predictor_from=weights))
    limits, of_own = (one.documents["report.html"].decode().split("<h2>Limits")[1] for one in (made, kept))
    assert "E_tau from /runs/atomic (sha256 aaaaaaaaaaaa)" in limits
    assert "the initial weights of the predictors from /runs/atomic (sha256 bbbbbbbbbbbb)" in limits
    assert "another run" not in of_own
    assert "12 test takes" in limits
    assert "One seed" in limits


def test_every_check_has_a_place_on_the_page(inputs: Tables, page: Reader) -> None:
    text = "".join(page.text)
    for judgement in rows_of(Judgement, inputs.tables["judgements"]):
        assert judgement.check.split(":")[0] in GROUPS
        assert judgement.check.split(": ", 1)[1] in text


def test_one_take_and_no_interval_still_make_a_report(few: Tables) -> None:
    alone = with_metrics(few, lambda m: m.replace(low=-np.inf, high=np.inf, n_takes=1))
    documents = built(alone, CFG).documents
    assert json.loads(documents["report.json"])["metrics"][0]["low"] is None
    assert "[−inf" not in documents["report.html"].decode()
    assert "inf]" not in documents["report.html"].decode()
    cells = Reader(documents["report.html"].decode()).cells
    assert all(text.endswith(" (too few takes)") for text in cells.values())
    assert b"too few takes" in documents["metrics.tex"]
    assert b"Infinity" not in documents["report.json"]


def test_rows_that_this_run_lacks_are_among_its_facts(inputs: Tables, kept: Kept, page: Reader) -> None:
    """Every row is built; a run without one lists it as not run: none of the page is in it, no other is left out."""
    json_ = json.loads(kept.documents["report.json"])
    shown = {key.partition("|")[0] for _, key in page.cells}
    lacking = [one.name for one in METHODS if one.id not in shown and not one.anticipates]
    assert json_["facts"][-1] == f"not run: {'; '.join(lacking)}"
    metric = next(m for m in rows_of(Metric, inputs.tables["metrics"]) if m.reference is None)
    assert not absent_rows(results_of([metric.replace(variant=one.id) for one in METHODS], []))


def test_a_run_with_two_rows_one_undecided_check_and_no_other_table_has_a_page_without_holes(few: Tables) -> None:
    rows = [m for m in rows_of(Metric, few.tables["metrics"]) if m.variant in ("no_traj", "oracle")]
    empty = ("gate", "headroom", "shuffles", "pair_distances", "progress_shares", "ceilings")
    bare = {name: few.tables[name].slice(0, 0) for name in empty} | {"metrics": table_of(Metric, rows)}
    checks = [("leak: x", "undecided", "d"), ("weather: it rains", "fails", "outside")]
    judged = [Judgement.model_validate(dict(zip(("check", "verdict", "detail"), one, strict=True))) for one in checks]
    made = built(Tables({**few.tables, **bare, "judgements": table_of(Judgement, judged)}), CFG)
    html = made.documents["report.html"].decode()
    for shown in (
        '<li class="open">0 of 1 No test data was seen in training',  # neither green nor red
        "Other checks",  # a check of an unknown kind
        "weather: it rains",
        "No ceiling was computed for this run: nothing here bounds the rows from above.",
    ):
        assert shown in html
    for absent in ('<section id="gate"', 'diagnostics"', "What can be known at most", "ceiling of"):
        assert absent not in html
    assert "; Scorer; " in html.split("not run: ")[1].split("</li>")[0]
    assert b"can be known" not in made.documents["metrics.tex"]
    assert json.loads(made.documents["report.json"])["ceilings_say"] == []


def test_every_chart_tells_its_numbers_in_words(inputs: Tables, page: Reader) -> None:
    assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")
    assert all(a.get("aria-label") or a.get("aria-hidden") for tag, a in page.tags if tag == "svg")
    results = results_of(rows_of(Metric, inputs.tables["metrics"]), [])
    for figure in (*rows.horizon_charts(results, []), rows.gain_chart(results), rows.control_chart(results)):
        assert "Oracle: 3: " in figure.description
        assert svg([figure]).startswith(
            Markup('<svg class="chart" role="img" aria-label="{}"').format(figure.description)
        )


def test_models_of_one_stage_that_epochs_are_chosen_by_other_scores_have_charts_of_their_own() -> None:
    def rows(model: str, quantity: str) -> list[CurvePoint]:
        """Two epochs on dev and on training takes."""
        scores = [(epoch, split) for epoch in (1, 2) for split in ("dev", "train")]
        return [
            CurvePoint(model=f"final/{model}", seed=0, epoch=epoch, split=split, quantity=quantity, value=-0.25)
            for epoch, split in scores
        ]

    found = training_charts([("latent", [*rows("plan_none", "-l1"), *rows("latent_head", "right")])])
    charts = {chart.title: chart.description for group in found for chart in group}
    assert "latent No-Traj: epoch 1: 1: -0.2" in charts["latent: dev -l1, thin: training takes"], "a distance, no share"
    assert "(another loss): epoch 1: 1: -25.0" in charts["latent: dev right, thin: training takes"]


# What was lost on the way, and what every stage counts.


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


def test_a_stage_says_itself_what_the_report_counts_of_it(few: Tables) -> None:
    toy = replace(STAGES["features"], name="toy", writes=("toys",), output=Output("toys", "toys", ("split",)))
    more = {"toys": few.tables["segments"], "toy.rejects": few.tables["trajectories.rejects"]}
    stage, kept = report_on((*REPORTED, toy)), Kept()
    assert {"toys", "toy.rejects"} <= set(stage.reads)
    held = Tables({**few.tables, **more})
    stage.run(Work(held, CFG, (), kept, Runtime("/nowhere", "cpu", 1, Path("unused"))))
    n, lost = more["toys"].num_rows, more["toy.rejects"].num_rows
    cells = "".join(f'<td class="num">{count}</td>' for count in (n + lost, lost, n))
    assert f"<tr><td>toy</td><td>toys</td>{cells}" in kept.documents["report.html"].decode()
