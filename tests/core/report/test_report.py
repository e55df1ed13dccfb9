"""The report: its numbers agree everywhere, and it is built whatever is missing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from report_page import CFG, Reader, with_metrics
from synthetic_results import Kept, Tables, a_metric, built

from schemas.arrow import rows_of, table_of
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import CurvePoint, Judgement, MaskCoverage, Metric, SamplingScore
from trajpilot_core.engine.stage import Output, Runtime, Work
from trajpilot_core.methods import METHODS, anticipation, predictors
from trajpilot_core.report import health
from trajpilot_core.report.build import GROUPS
from trajpilot_core.report.figures import report_charts
from trajpilot_core.report.figures.base import Material
from trajpilot_core.report.figures.curves import training_charts
from trajpilot_core.report.loaded import mask_sentence, sampling_sentence
from trajpilot_core.report.tables.results import Results, TableSpec, absent_rows, all_tables, build_table, results_of
from trajpilot_core.report.tables.table import DAGGER, number
from trajpilot_core.stages import REPORTED, STAGES
from trajpilot_core.stages.report import report_on


def test_the_stage_writes_what_it_declares_and_reads_nothing_else(inputs: Tables, kept: Kept) -> None:
    assert set(kept.documents) == set(STAGES["report"].writes)
    assert set(inputs.asked) <= set(STAGES["report"].reads)
    assert kept.counts == (12, 12)


def test_every_cell_agrees_in_html_json_latex_and_parquet(inputs: Tables, kept: Kept, page: Reader) -> None:
    """100 % of the printed cells, from the metrics table outwards."""
    stored = {
        (m.variant, m.reference or "", m.pooling if m.horizon is None else str(m.horizon), m.metric): m
        for m in rows_of(Metric, inputs.tables["metrics"])
        if m.seed is None and m.cluster == "take"
    }
    document = json.loads(kept.documents["report.json"])
    in_json = {(f"t-{table['id']}", cell["key"]): cell for table in document["tables"] for cell in table["cells"]}
    assert set(in_json) == set(page.cells)
    assert len(in_json) > 1000
    for (table, key), text in page.cells.items():
        m, cell = stored[tuple(key.split("|"))], in_json[table, key]
        signed = m.reference is not None
        interval = f"[{number(m.low, is_signed=signed)}, {number(m.high, is_signed=signed)}]"
        assert text.replace("▲", "").replace("▼", "").split() == [number(m.value, is_signed=signed), *interval.split()]
        assert (cell["value"], cell["low"], cell["high"], cell["text"]) == (
            m.value,
            m.low,
            m.high,
            number(m.value, is_signed=signed),
        )
    in_latex = latex_values(kept.documents["metrics.tex"].decode().split(r"\label{tab:ceilings}")[0])
    assert in_latex == [cell["text"].replace("−", "-") for table in document["tables"] for cell in table["cells"]]


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


TRUTH = ("oracle", "previous")
PLAIN = ("overview", "horizons", "controls", "sequences")
"""Tables of values, not of differences."""


def test_diagnostics_are_folded_under_their_names_and_published_values_stand_on_recorded_takes_alone(
    kept: Kept, recorded: Kept
) -> None:
    for report, is_recorded in ((kept, False), (recorded, True)):
        documents = report.documents
        page = documents["report.html"].decode()
        section = page.split('<section id="diagnostics">')[1].split("</section>")[0]
        assert section.count("<details>") == 2
        assert "Same action, different recording" in section
        assert "2.125 [0.100, 9.000]" in section
        assert "37.5 [1.0, 99.0]" in section
        assert ("Published, in this order, of unnamed takes: l1 0.171" in section) == is_recorded
        assert len(json.loads(documents["report.json"])["pair_distances"]) == 16


def test_bold_is_the_single_best_row_above_every_floor_that_does_not_see_the_truth(inputs: Tables) -> None:
    results = results_of(rows_of(Metric, inputs.tables["metrics"]), [])
    at: dict[tuple[object, ...], list[Metric]] = {}
    for m in results.metrics:
        at.setdefault((m.metric, m.horizon, m.pooling, m.reference), []).append(m)
    floors, seen = {"majority", "previous", "knn_labels"}, 0
    for table in all_tables(results):
        for _, rows in table.blocks():
            for column, metric in enumerate(table.header[1:], 1):
                cells = [row[column] for row in rows if table.id in PLAIN and row[0].row not in TRUTH and row[column]]
                sign, rivals = -1 if metric == "ED" else 1, floors | {cell.metric.variant for cell in cells}
                for cell in cells:
                    m = cell.metric
                    others = [o for o in at[m.metric, m.horizon, m.pooling, m.reference] if o.variant in rivals]
                    others = [o for o in others if o.variant != m.variant]
                    above = all(sign * (m.value - o.value) > 0 and f"{o.value:.1f}" != cell.text for o in others)
                    expected = above and m.variant not in floors and len(cells) > 1 and cell.text != "0.0"
                    assert cell.is_best == expected, m
                seen += sum(cell.is_best for cell in cells)
            assert not any(cell.is_best for row in rows if row[0].row in TRUTH for cell in row[1:] if cell)
    assert seen > 20


def bold(rows: dict[str, float], weak: frozenset[str] = frozenset()) -> list[str]:
    """The bold rows of a column with these values."""
    made = [a_metric(variant=row, value=v, low=v - 1, high=v + 1) for row, v in rows.items()]
    table = build_table(Results(tuple(made), weak), TableSpec("t", "", [*rows], ["M@1"]))
    return [cell.metric.variant for cell in table.values() if cell.is_best]


def test_ties_as_printed_zeros_floors_and_undertrained_rows_are_never_bold() -> None:
    assert bold({"no_traj": 9.0, "scorer": 12.0, "majority": 2.0}) == ["scorer"]
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


def test_what_dev_chose_for_joint_decoding_is_in_the_json(kept: Kept) -> None:
    rows = json.loads(kept.documents["report.json"])["decoding"]
    assert [(row["horizon"], row["weight"]) for row in rows][:3] == [(3, 0.5), (4, 0.5), (5, 1.0)]


def test_how_far_samplings_lie_apart_is_printed_as_means_over_seeds(inputs: Tables, kept: Kept, page: Reader) -> None:
    """The range over seeds and samplings together, 20 to 26 here, would be that of trainings as well."""
    text = " ".join("".join(page.text).split())
    assert "M@1 of PDPP in 5 samplings of its plans, lowest to highest: H=3 21.0 to 25.0, H=4 21.0 to 25.0." in text
    assert len(json.loads(kept.documents["report.json"])["samplings"]) == 20
    one = [row for row in rows_of(SamplingScore, inputs.tables["samplings"]) if row.sampling == 0]
    assert sampling_sentence(one) == sampling_sentence([]) == ""


def test_how_many_true_labels_the_masks_allow_is_printed_where_rows_are_masked(
    few: Tables, kept: Kept, page: Reader
) -> None:
    rows = [
        MaskCoverage(horizon=h, n_windows=20, n_windows_unmasked=h - 3, n_steps=20 * h, n_allowed=20 * h - 6,
                     n_middle=20 * (h - 2), n_middle_allowed=20 * (h - 2) - 4)
        for h in (3, 4)
    ]  # fmt: skip
    said = mask_sentence(rows)
    assert said == (
        "The masks of the scenarios allow 52 of 60 true labels of middle steps of the test windows (86.7 %; H=3 80.0, "
        "H=4 90.0) and 128 of 140 of all steps (91.4 %); no masked row can answer the others; 1 of 40 windows are not "
        "masked: no training take has their scenario"
    )
    masked = built(Tables({**few.tables, "mask_coverage": table_of(MaskCoverage, rows)}), CFG).documents
    assert said in " ".join("".join(Reader(masked["report.html"].decode()).text).split())
    assert [row["n_allowed"] for row in json.loads(masked["report.json"])["mask_coverage"]] == [54, 74]
    whole = mask_sentence([row.replace(n_allowed=row.n_steps, n_windows_unmasked=0) for row in rows])
    assert whole.endswith("140 of 140 of all steps (100.0 %)")
    assert "masks of the scenarios" not in "".join(page.text)
    assert json.loads(kept.documents["report.json"])["mask_coverage"] == []


def test_simulated_numbers_carry_a_banner_and_no_published_value_and_the_header_names_the_corpus(
    kept: Kept, recorded: Kept, page: Reader
) -> None:
    text = "".join(page.text)
    assert "Simulated world." in text
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
    limits, of_own = (" ".join(json.loads(one.documents["report.json"])["limits"]) for one in (made, kept))
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


def test_rows_that_this_run_lacks_stand_below_the_main_table(inputs: Tables, kept: Kept, page: Reader) -> None:
    """Every row is built; a run without one lists it as not run: none of the page is in it, no other is left out."""
    text, json_ = "".join(page.text), json.loads(kept.documents["report.json"])
    places = [text.index(said) for said in ("All rows but ablations over", "not run: ", "Difference to No-Traj,")]
    assert places == sorted(places)
    shown = {cell["key"].partition("|")[0] for table in json_["tables"] for cell in table["cells"]}
    lacking = [one.name for one in METHODS if one.id not in shown and not one.anticipates]
    assert json_["absent_rows"] == f"not run: {'; '.join(lacking)}"
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
        "nothing to draw",
        '<li class="v-undecided">',  # neither green nor red
        '<li class="open"><b>0 of 1</b>',
        "Other checks",  # a check of an unknown kind
        "weather: it rains",
        '<li class="open"><b>Ceilings absent</b></li>',
        "No ceiling was computed for this run: nothing here bounds the rows from above.",
    ):
        assert shown in html
    for absent in ('diagnostics"', "What can be known at most", 'href="#ceilings"', 'class="bound'):
        assert absent not in html
    assert "; Scorer; " in html.split("not run: ")[1].split("</p>")[0]
    assert b"can be known" not in made.documents["metrics.tex"]
    assert "No ceiling was computed" in json.loads(made.documents["report.json"])["ceilings_say"][0]


def test_every_chart_tells_its_numbers_in_words(inputs: Tables, page: Reader) -> None:
    assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")
    assert all(a.get("aria-label") or a.get("aria-hidden") for tag, a in page.tags if tag == "svg")
    results = results_of(rows_of(Metric, inputs.tables["metrics"]), [])
    drawn = report_charts(Material(results, [], [], [], []))
    for figure in (*drawn["horizon"], *drawn["summary"], *drawn["controls"]):
        assert 'role="img" aria-label="' in figure.chart
        assert "Oracle: 3: " in figure.chart


def test_train_scores_stand_next_to_dev_in_the_charts_of_the_trainings(inputs: Tables) -> None:
    def drawn(splits: tuple[str, ...]) -> dict[str, str]:
        """Caption -> chart of the trainings, of the rows of some splits."""
        of_stage = [
            (stage, [row for row in rows_of(CurvePoint, inputs.tables[f"{stage}_curves"]) if row.split in splits])
            for stage in ("alignment", "predictor", "scorer")
        ]
        found = report_charts(Material(results_of([], []), [], [], [], of_stage))["training"]
        return {chart.caption: str(chart.chart) for chart in found}

    both = drawn(("train", "dev"))
    thin = [f"{what}, thin: on training takes" for what in ("alignment: dev R@5", "predictor: dev M@1")]
    assert set(both) >= {*thin, "scorer: dev M@1, thin: on training takes"}
    for row in ("with trajectories", "No-Traj", "Endpoint-Traj"):
        assert f"{row}: 1: 16.0" in both[thin[1]]
        assert f"{row}, training takes: 1: 28.0" in both[thin[1]]
    assert "predictor: dev M@1" in drawn(("dev",))


def test_models_of_one_stage_that_epochs_are_chosen_by_other_scores_have_charts_of_their_own() -> None:
    def rows(model: str, quantity: str) -> list[CurvePoint]:
        """Two epochs on dev and on training takes."""
        scores = [(epoch, split) for epoch in (1, 2) for split in ("dev", "train")]
        return [
            CurvePoint(model=f"final/{model}", seed=0, epoch=epoch, split=split, quantity=quantity, value=-0.25)
            for epoch, split in scores
        ]

    found = training_charts([("latent", [*rows("plan_none", "-l1"), *rows("latent_head", "right")])])
    charts = {chart.caption: str(chart.chart) for chart in found}
    assert "latent No-Traj: 1: -0.2" in charts["latent: dev -l1, thin: on training takes"], "a distance, no share"
    assert "labels of latents (another loss): 1: -25.0" in charts["latent: dev right, thin: on training takes"]


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
