"""Every label of the paper has a table with its places; docs/reproduction.md agrees with the code."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from checkout import CHECKOUT
from pdflatex import faults
from reproduction_page import commands_table, location, printed, setting
from synthetic_results import a_metric

from deployments.recipes import RECIPES
from schemas.arrow import table_of
from schemas.config import PipelineConfig
from schemas.results import Headroom
from schemas.vlm import EndpointScore, VlmConfig
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.pose_rows import pose_rows
from trajpilot_core.paper.published import (
    ANTICIPATION,
    ATOMIC,
    ATOMIC_CORPUS,
    GOAL_MASKED,
    GOAL_SEEN,
    HORIZONS,
    OPEN_METRICS,
    table_rows,
)
from trajpilot_core.report.tables.results import results_of
from trajpilot_core.report.tables.table import DASH, NOTHING
from trajpilot_core.studies.paper_tables.base import PaperRun, addresses
from trajpilot_core.studies.paper_tables.cells import cells_of
from trajpilot_core.studies.paper_tables.figures import FIGURES
from trajpilot_core.studies.paper_tables.figures.base import undrawn
from trajpilot_core.studies.paper_tables.labels import LABELS, tables_of
from trajpilot_core.studies.paper_tables.labels.planning import CLOSED_PANEL, GOAL_SEEN_ROWS
from trajpilot_core.studies.paper_tables.labels.scored import ENDPOINT_CACHE, HEADROOM, POSE_SCORES
from trajpilot_core.studies.paper_tables.write import banner, write_document, write_tables

PLACES = [*((h, "none") for h in HORIZONS), (None, "sample")]
OURS = (*GOAL_SEEN_ROWS, "scorer")


def value(row: str, horizon: int | None, metric: str) -> float:
    return 10.0 + OURS.index(row) + (horizon or 0) / 10 + OPEN_METRICS.index(metric) / 100


def an_atomic_run(*, simulated: bool = True, name: str = "runs/atomic") -> PaperRun:
    """A run on atomic descriptions with the rows of planning and of goal dropout."""
    metrics = [
        a_metric(variant=row, horizon=h, pooling=pooling, metric=metric, value=value(row, h, metric))
        for row, (h, pooling), metric in product(OURS, PLACES, OPEN_METRICS)
    ]
    quantities = dict.fromkeys(set(Headroom.model_fields) - {"seed", "horizon", "pool", "n_windows"}, 0.5)
    pools = [
        Headroom(seed=seed, horizon=5, pool=pool, n_windows=7, **quantities | {"same_step_recall": 10.0 * seed})
        for seed, pool in product((0, 1), (1, 5))
    ]
    held = {("evaluation", "headroom"): table_of(Headroom, pools)}
    return PaperRun(name, ATOMIC_CORPUS, results_of(metrics, []), {}, simulated, lambda *at: held.get(at))


def texts(runs: list[PaperRun], label: str) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in tables_of(cells_of(runs))[label].rows]


def test_every_published_table_of_the_paper_has_its_label() -> None:
    files = {row["file"] for row in table_rows("index")} - {"text"}
    assert files == set(LABELS) - {CLOSED_PANEL}


def test_a_table_has_the_places_of_the_papers_numbers() -> None:
    """Rows and horizons as the paper's data have them; rows of the literature are left out."""
    literature = {"in_avit", "video_llama", "plausivl", "vjepa2_vit_g", "vjepa2.1_vit_g", "vjepa2.1_vit_G"}
    for label in sorted(set(LABELS) - {CLOSED_PANEL, GOAL_SEEN, GOAL_MASKED}):
        ours = {"viterbiplannet": "viterbi_plan_net", "ground_truth": "train"}
        if label == ANTICIPATION:
            ours = {row: f"anticipation_{row}" for row in ("no_traj", "scorer", "oracle", "qwen_zs", "qwen_sft_llm")}
        wanted = {
            (ours.get(one["row"], one["row"]), int(one["horizon"]) if one["horizon"] else None)
            for one in table_rows(label)
            if one["row"] not in literature
        }
        places = product(LABELS[label].lines, LABELS[label].columns)
        assert {at[:2] for line, column in places for at in addresses(line, column)} >= wanted, label


def test_an_atomic_run_fills_planning_goal_dropout_and_headroom() -> None:
    cells = cells_of([an_atomic_run()])
    assert {cell.table for cell in cells} == {ATOMIC, GOAL_SEEN, HEADROOM}
    rows = texts([an_atomic_run()], ATOMIC)
    assert [row[2:] for row in rows[2:3]] == [[f"{value('no_traj', 3, m):.2f}" for m in OPEN_METRICS]]
    assert texts([an_atomic_run()], HEADROOM)[:3:2] == [
        ["top-1", "5.00", "0.50", "0.500 / 0.500"],
        ["top-16", *[NOTHING] * 3],
    ]
    seen = texts([an_atomic_run()], GOAL_SEEN)
    assert seen[0][1] == " / ".join(f"{value('oracle', 3, m):.1f}" for m in ("M@1", "M@5", "MSeq"))
    assert seen[-1][0] == "Overall"


def test_an_empty_cell_says_that_it_was_not_run() -> None:
    rows = {(row[0] or "", row[1]): row[2:] for row in texts([], ATOMIC)[:5]}
    assert rows["3", "Qwen zero-shot"] == rows["", "No-Traj"] == [NOTHING] * 6
    for label, table in LABELS.items():
        said = {cell for row in texts([], label) for cell in row[len(table.heads) :]}
        assert said == {NOTHING} | ({DASH} if table.void else set())


def scores(rows: list[tuple[str, int | None, float]], **where: object) -> pa.Table:
    """A table of scores as the stages of their own write them: (row, seed, value) of every metric."""
    names = ("mid", "full", "Verb", "Noun", "Action", "Action Acc.", "accuracy", "balanced", "made", "missed")
    held = [
        {"row": row, "seed": seed, "metric": metric, "value": value, "low": value - 1}
        for row, seed, value in rows
        for metric in names
    ]
    return pa.Table.from_pylist([one | {"high": float("inf"), "n_takes": 7} | where for one in held])


PAPERS_SPACE = {"subset": "overall", "space": "trained_pairs"}


def test_a_stage_of_its_own_fills_its_label_by_the_mean_over_its_seeds() -> None:
    run = replace(an_atomic_run(name="shots"), dataset="egoexo4d_basketball", results=results_of([], []))
    held = {
        ("outcome", "shot_scores"): scores([("no_traj", 0, 1.0), ("no_traj", None, 5.0), ("scorer", 0, 4.0)]),
        ("action_token", "token_scores"): pa.concat_tables(
            [
                scores([("visual", 0, 1.0), ("visual", 1, 3.0), ("no_traj", 0, 4.0)], **PAPERS_SPACE),
                scores([("visual", 0, 0.5)], subset="overall", space="challenge"),
            ]
        ),
        ("probe", "probe_scores"): scores([("probe", 0, 9.0)], **PAPERS_SPACE),
        ("pose_sources", "pose_scores"): scores([("aria -> aria", None, 9.0)], against="other"),
    }
    made = cells_of([replace(run, read=lambda *at: held.get(at))])
    found = {(cell.table, cell.row, cell.metric): (cell.value, cell.low, cell.high) for cell in made}
    assert found["basketball_shot_outcome", "no_traj", "miss_recall"] == (5.0, 4.0, None)
    assert found["basketball_shot_outcome", "scorer", "accuracy"] == (4.0, 3.0, None)
    assert found["ek100", "visual_only_probe", "action_accuracy"] == (2.0, None, None), "two seeds have no interval"
    assert found["ek100", "no_traj", "action_R@5"] == (4.0, 3.0, None)
    assert not any(label == POSE_SCORES.label for label, _, _ in found), "differences are no cells"


@pytest.mark.parametrize("second", ["pi3", "odometry"])
def test_a_row_of_pose_sources_is_filled_by_the_source_that_it_names_and_by_no_other(second: str) -> None:
    """Seen before: what odometry had estimated stood under Pi3."""
    held = {("pose_sources", "pose_scores"): scores([(row.name, None, 9.0) for row in pose_rows(("aria", second))])}
    held = {at: table.append_column("against", pa.nulls(len(table), pa.string())) for at, table in held.items()}
    filled = {
        row[0]: row[1] for row in texts([replace(an_atomic_run(), read=lambda *at: held.get(at))], POSE_SCORES.label)
    }
    of_paper = ["Pi3 → Pi3", "Aria → Pi3", "Aria + Pi3 → Pi3"]
    assert filled["Aria → Aria"] == "9.00"
    assert [filled[name] for name in of_paper] == [("9.00" if second == "pi3" else NOTHING)] * 3


def recognised(adapter: str = "") -> pa.Table:
    """The committed table of a recogniser that is right of every second segment."""
    row = EndpointScore(row="R@1", count=1, percentage=50.0, adapter=adapter)
    return table_of(EndpointScore, [row])


@pytest.mark.parametrize("adapter", ["", "recogniser@0123456789abcdef"])
def test_an_untuned_recogniser_fills_no_line_of_a_tuned_one(adapter: str) -> None:
    """Seen before: an untuned random model stood under "a tuned vision-language model"."""
    cache = recognised(adapter)
    run = replace(an_atomic_run(), read=lambda stage, entry: cache if entry == "endpoint_cache" else None)
    shown = {row[0]: row[2] for row in texts([run], ENDPOINT_CACHE)}
    assert shown["Endpoint R@1"] == ("50.00" if adapter else NOTHING)


def named(name: str, *rows: str) -> PaperRun:
    """An atomic run with further rows; all of its numbers are those of its name."""
    run = an_atomic_run(name=name)
    metrics = [one.replace(value=float(len(name))) for one in run.results.metrics]
    metrics += [one.replace(variant=row) for row in rows for one in metrics if one.variant == "scorer"]
    return replace(run, results=results_of(metrics, []), read=lambda *at: None)


def test_the_first_root_with_a_number_for_a_cell_fills_it() -> None:
    """Refused before: `atomic_anticipation` has the rows of `atomic`, too."""
    plain = named("runs/plain-")
    blind = named("runs/blind", *(f"anticipation_{row}" for row in ("no_traj", "scorer")))
    asked = named("runs/v", "qwen_zs", "anticipation_qwen_zs")
    filled = {(cell.table, cell.row): cell.value for cell in cells_of([plain, blind, asked])}
    assert filled[ATOMIC, "scorer"] == filled[GOAL_SEEN, "oracle"] == float(len(plain.name))
    assert filled[ATOMIC, "qwen_zs"] == filled[ANTICIPATION, "anticipation_qwen_zs"] == float(len(asked.name))
    assert filled[ANTICIPATION, "anticipation_scorer"] == float(len(blind.name))
    assert {cell.value for cell in cells_of([blind, plain]) if cell.table == ATOMIC} == {float(len(blind.name))}


def test_a_run_that_fills_no_table_is_refused() -> None:
    with pytest.raises(InputError, match="other is a run on epic_kitchens and fills no table of the paper"):
        cells_of([replace(an_atomic_run(name="other"), dataset="epic_kitchens")])


def test_the_list_of_commands_names_a_recipe_for_every_label_and_figure() -> None:
    rows = {str(row[0]).strip("`"): [str(cell) for cell in row[1:]] for row in commands_table().rows}
    assert set(rows) == {*LABELS, *(figure.label for figure in FIGURES)}
    assert rows[GOAL_SEEN] == ["table", "`--recipe atomic --set predictor.twin_goal_dropout=0.5`"]
    assert rows[ATOMIC] == ["table", "`--recipe atomic`; `--recipe vlm_sft`; `--recipe vlm_zero_shot`"]
    typed = [re.findall(r"--recipe (\w+)", runs) for _, runs in rows.values()]
    assert all(typed)
    assert {name for names in typed for name in names} <= set(RECIPES)


@pytest.mark.parametrize("per_horizon", [None, 2])
def test_no_table_takes_numbers_of_a_sample_of_windows(per_horizon: int | None) -> None:
    asked = VlmConfig(rows=("qwen_zs",), windows_per_horizon=per_horizon)
    last = SimpleNamespace(config=PipelineConfig(vlm=asked))
    run = replace(an_atomic_run(), last=last, read=lambda *at: recognised("tuned"))
    is_whole = per_horizon is None
    assert bool(LABELS[ATOMIC].cells(run)) == is_whole
    assert bool(LABELS["qwen3vl_endpoint_cache"].cells(run)) == is_whole


def test_paper_tex_compiles_full_and_empty_and_every_filled_caption_says_simulated(tmp_path: Path) -> None:
    for name, runs in (("empty", []), ("full", [an_atomic_run()])):
        cells, out = cells_of(runs), tmp_path / name
        write_tables(cells, out)
        assert faults(write_document(tuple(LABELS), {}, banner(cells), out, undrawn(FIGURES, {}))) == []
        for label in LABELS:
            assert ("SIMULATED" in (out / "tables" / f"{label}.tex").read_text()) == (name == "full"), label
    (out / "tables" / f"{ATOMIC}.tex").write_text(r"\begin{tabular}{l}" + "W" * 200 + r"\end{tabular}")
    assert any("Overfull" in fault for fault in faults(out / "paper.tex")), "the planted fault"


CONFIG = PipelineConfig()
PAGE = (CHECKOUT / "docs" / "reproduction.md").read_text()
REASONS = (CHECKOUT / "docs" / "decisions" / "paper-gaps.md").read_text()


def block(name: str) -> str:
    return PAGE.split(f"<!-- checked: {name} -->")[1].split("<!-- end -->")[0].strip()


ROWS = {int(cells[1]): cells[4].strip() for line in block("decisions").splitlines()[2:] if (cells := line.split("|"))}


def test_every_decision_has_its_reasons() -> None:
    assert list(ROWS) == list(range(1, 53))
    assert set(ROWS) == {int(n) for n in re.findall(r"^\| (\d+) \|", REASONS, re.M)}


def test_every_setting_and_place_exists_with_its_value() -> None:
    assert {number: printed(cell, CONFIG) for number, cell in ROWS.items()} == ROWS


def test_a_stale_value_and_a_removed_name_are_seen() -> None:
    assert printed("`scorer.margin` 0.5", CONFIG) == "`scorer.margin` 0.05"
    assert setting(CONFIG, "scorer.key") == "`scorer.key` action (or visual)"
    assert location("schemas/annotation", "MOTIONS") == "`MOTIONS` in `schemas/annotation.py`: 16"
    for removed in ("`scorer.marginal` 0.05", "`cosine_lost` in `training/losses.py`", "as the paper says"):
        with pytest.raises(AssertionError, match=r"has no|is no setting"):
            printed(removed, CONFIG)


def test_the_labels_are_those_of_the_code_with_the_runs_that_fill_them() -> None:
    assert commands_table().markdown().strip() == block("labels")
