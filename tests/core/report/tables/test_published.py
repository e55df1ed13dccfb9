"""Published values stand next to ours where the corpus and the task are theirs, and nowhere else."""

from report_page import CFG, Reader, real, with_metrics
from synthetic_results import Kept, Tables, built

from schemas.arrow import rows_of
from schemas.features import RELEASED_NOTE
from schemas.results import GateRow, Headroom, Metric
from trajpilot_core.report.tables.published import anticipation_for, comparisons, pool_comparisons, published_for
from trajpilot_core.report.tables.results import Results, results_of


def of(inputs: Tables) -> Results:
    return results_of(rows_of(Metric, inputs.tables["metrics"]), [])


def test_a_real_corpus_shows_the_published_value_beside_ours(recorded: Kept) -> None:
    text = "".join(Reader(recorded.documents["report.html"].decode()).text)
    assert "Published value next to ours" in text
    assert "29.38" in text
    assert "Simulated world." not in text


def test_another_corpus_and_another_task_on_the_same_takes_have_no_published_value(inputs: Tables) -> None:
    other = with_metrics(inputs, lambda m: m.replace(corpus="epic"))
    assert published_for(of(other), CFG) is None
    assert comparisons(of(other), None) == []
    for task in ({"corpus": "egoexo4d_basketball"}, {"corpus": None}, {"released": "omnivore_video"}):
        assert published_for(of(real(inputs)), CFG)
        assert published_for(of(real(inputs)), CFG.replace(**task)) is None


def test_a_recorded_run_on_released_features_says_so_on_the_page_and_above_each_latex_table(inputs: Tables) -> None:
    documents = built(real(inputs), CFG.replace(released="omnivore_video")).documents
    text = "".join(Reader(documents["report.html"].decode()).text)
    assert "Published value next to ours" not in text
    assert "29.38" not in text
    assert "Released features." in text
    assert text.count(RELEASED_NOTE) >= 2  # among the facts, and among the limits
    latex = documents["metrics.tex"].decode()
    assert latex.count("not to be set next to published numbers") == latex.count("\\caption")


def test_another_vocabulary_has_other_published_values(inputs: Tables) -> None:
    labels, classes = (published_for(of(real(inputs)), CFG.replace(is_closed=is_so)) for is_so in (False, True))
    assert labels is not None
    assert classes is not None
    assert not set(labels.values) & set(classes.values)


def test_the_published_table_is_whole_and_marks_values_outside_our_interval(inputs: Tables) -> None:
    found = published_for(of(real(inputs)), CFG)
    assert found is not None
    assert len(found.values) == 6 * 5 * 6
    assert found.values[3, "no_traj", "M@1"] == found.values[3, "no_traj", "MSeq"] == 29.38
    rows = comparisons(of(real(inputs)), found)
    assert len(rows) == 6 * 3 * 6, "the rows that this run has"
    assert {row.is_outside for row in rows} == {True, False}


def anticipating(inputs: Tables) -> Tables:
    """The same rows, of which two are called as rows without a goal."""
    names = {"no_traj": "anticipation_no_traj", "top1": "anticipation_oracle_no_dropout"}
    return with_metrics(inputs, lambda m: m.replace(variant=names.get(m.variant, m.variant)))


def test_without_a_goal_the_papers_future_and_full_stand_next_to_ours_on_its_recorded_corpus_alone(
    inputs: Tables,
) -> None:
    recorded = of(anticipating(real(inputs)))
    found = anticipation_for(recorded, CFG)
    assert found is not None
    n_seen, n_masked, n_all = 5 * 6 * 6, 2 * 6 * 3, 4 * 3
    assert len(found.values) == n_seen + n_masked + n_masked + 2 * n_all, "each number once, in our names"
    assert found.values[3, "anticipation_no_traj", "M@1"] == found.values[3, "anticipation_no_traj", "MSeq"]
    assert found.values["sample", "anticipation_oracle", "M@1"] == 33.9
    assert (3, "oracle", "M@1") not in found.values, "the table of planning prints it more exactly"
    rows = comparisons(recorded, found)
    assert {row.name for row in rows} == {
        "No-Traj, no goal",
        "Oracle, no goal, no dropout",
        "Oracle",
    }
    assert anticipation_for(of(real(inputs)), CFG) is None, "no row of it anticipates"
    assert anticipation_for(of(anticipating(inputs)), CFG) is None, "simulated takes"
    for other in ({"corpus": "egoper"}, {"corpus": None}, {"is_closed": True}):
        assert anticipation_for(recorded, CFG.replace(**other)) is None
    text = "".join(Reader(built(anticipating(real(inputs)), CFG).documents["report.html"].decode()).text)
    assert "full per-horizon results of anticipation" in text


def pool(seed: int, size: int, horizon: int = 5) -> Headroom:
    numbers = dict.fromkeys(set(Headroom.model_fields) - {"seed", "horizon", "pool", "n_windows"}, 0.5)
    return Headroom(seed=seed, horizon=horizon, pool=size, n_windows=9, **numbers | {"same_step_recall": 10.0 * seed})


def gate(seed: int, horizon: int | None) -> GateRow:
    numbers = {"gain_opened": 0.0, "gain_overall": 0.0, "harmed": 0.0, "n_opened": 1, "n_windows": 9}
    return GateRow(horizon=horizon, seed=seed, open_rate=20.0 + seed, **numbers)


def test_gate_and_pool_stand_next_to_the_papers_on_its_recorded_corpus_alone() -> None:
    gates = [gate(seed, h) for seed in (0, 1) for h in (3, 4, None)]
    pools = [pool(seed, size, h) for seed in (0, 1) for size in (1, 64) for h in (4, 5)]
    rows = pool_comparisons(gates, pools, CFG, is_recorded=True)
    found = {(row.place, row.name, row.metric): (row.ours, row.published, row.difference) for row in rows}
    assert found["3", "gate of the Scorer", "fallback, %"] == ("79.5", "81", "−1.5")
    assert found["5", "pool of 1", "mid same-step recall, %"] == ("5.0", "15.36", "−10.4")
    assert found["5", "pool of 64", "endpoint cosine, local"] == ("0.500", "0.715", "−0.215")
    assert found["5", "best of a pool of 64", "MSeq"][:2] == ("0.5", "21.9")
    assert len(found) == 1 + 2 * 4 + 2
    for cfg, is_recorded in ((CFG, False), (CFG.replace(is_closed=True), True), (CFG.replace(corpus="egoper"), True)):
        assert pool_comparisons(gates, pools, cfg, is_recorded=is_recorded) == []
