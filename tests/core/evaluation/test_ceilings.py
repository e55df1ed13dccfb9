"""From tables to ceilings: which steps a window shows, how rows are compared, and how they are judged."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from drawn_tables import describe_world, middle_world, world_tables
from right_predictions import right_predictions

from schemas.annotation import Segment, Window
from schemas.arrow import rows_of, table_of
from schemas.config import EvaluationConfig, IngestConfig
from schemas.results import Ceiling, TakeScore
from schemas.world import WorldConfig
from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.corpora.records.closed_vocabulary import label_classes
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.bootstrap import cluster_sums
from trajpilot_core.evaluation.ceiling import (
    ERRORS,
    ExactCeilings,
    calibration_check,
    ceiling_checks,
    compare,
    known_of_predictions,
    known_values,
    paired,
    read_world,
    row_check,
    row_scores,
)
from trajpilot_core.evaluation.comparison import pair
from trajpilot_core.evaluation.prediction_arrays import Predictions
from trajpilot_core.methods import METHODS, method
from trajpilot_core.metrics import with_ceiling
from trajpilot_core.simworld.inference import map_decoding
from trajpilot_core.simworld.inference.bayes_optimal import answers
from trajpilot_core.simworld.inference.visible import (
    KINDS,
    KINDS_WITHOUT_GOAL,
    TakeSteps,
    overlapped,
    reach_s,
    seen_by,
    take_steps,
    unshown,
    window_groups,
)
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.appearance import FADE_S
from trajpilot_core.simworld.world.truth import World

CFG = EvaluationConfig(bootstrap=100)
PLAIN = {"broken": "none"}
INGEST = IngestConfig(central_share=0.6, max_horizon=4)


@pytest.fixture(scope="module")
def world() -> World:
    return sample_world(middle_world().replace(**PLAIN, train_takes=4, test_takes=24))


@pytest.fixture(scope="module")
def tables(world: World) -> dict[str, pa.Table]:
    return world_tables(world, INGEST)._asdict()


def windows_of(tables: dict[str, pa.Table]) -> pa.Table:
    return tables["windows"].filter(pc.equal(tables["windows"]["split"], "test"))


@pytest.fixture(scope="module")
def known(world: World, tables: dict[str, pa.Table]) -> ExactCeilings:
    return known_values(world, tables["segments"], windows_of(tables))


def shown(world: World, start_s: float, end_s: float) -> TakeSteps:
    """Return the steps under one segment with these bounds in the first take."""
    take = world.takes[0]
    label = world.labels[take.segments[3].label].label_id
    place = {"segment_id": "s", "take_id": take_id(take.uid), "split": "train", "position": 0, "run": 0}
    times = {"start_s": start_s, "end_s": end_s, "anchor_s": take.segments[3].time_s, "label_id": label}
    texts = dict.fromkeys(("raw_text", "label", "annotation_uid", "annotator"), "")
    (found,) = take_steps(world, table_of(Segment, [Segment.model_validate({**place, **times, **texts})]))
    assert found.step.tolist() == [3]
    return found


def test_an_interval_shows_the_steps_that_it_overlaps_and_the_look_reaches_as_far_as_it_fades(world: World) -> None:
    step, reach = world.takes[0].segments[3], reach_s(world.config)
    far = reach + FADE_S / 2 + 0.01
    inside = shown(world, step.start_s + far, step.end_s - far)
    assert inside.look.tolist() == inside.motion.tolist() == [[3, 3]]
    fading = shown(world, step.start_s + far, step.end_s - reach - 0.01)
    assert fading.motion.tolist() == [[3, 3]]
    assert fading.look.tolist() == [[3, 4]]
    over = shown(world, step.start_s + reach - 0.01, step.end_s - reach)
    assert over.motion.tolist() == [[2, 3]], "an interval that ends on the boundary does not reach over it"

    n = len(world.takes[0].segments)
    found = overlapped(world.takes[0], np.array([-9.0, 0.0]), np.array([0.1, 999.0]))
    assert found.tolist() == [[0, 0], [0, n - 1]], "what lies before the first and behind the last belongs to them"
    assert reach_s(WorldConfig(fps=10, size_px=192)) == pytest.approx(0.1)
    assert reach_s(WorldConfig(fps=10, size_px=192).replace(trajectory_hz=50, fps=60)) == pytest.approx(1.1 / 50)


def test_pixels_show_the_motion_of_the_ends_the_oracle_all_motion_and_rows_without_a_goal_nothing_of_the_last_step(
    world: World, tables: dict[str, pa.Table]
) -> None:
    takes = take_steps(world, tables["segments"])
    windows = [row for row in windows_of(tables)["segment_ids"].to_pylist() if len(row) == 4]
    for group in window_groups(takes, windows):
        no_traj, ends, oracle = (seen_by(takes, group, kind) for kind in ("no_traj", "endpoint_traj", "oracle"))
        start, *mids, goal = no_traj.targets
        assert np.array_equal(no_traj.motion, ends.motion)
        assert ends.motion[:, [start, goal]].all()
        assert ends.look[:, [start, goal]].all()
        assert oracle.motion[:, oracle.targets].all()
        assert oracle.look[:, mids].mean() < 0.5
        assert np.array_equal(oracle.look, ends.look)
        alone, moving, to_goal = (seen_by(takes, group, kind) for kind in KINDS_WITHOUT_GOAL)
        for one in (alone, moving, to_goal):
            assert one.look[:, one.targets[0]].all()
            assert not one.look[:, one.targets[2] :].any(), "three steps reach no further than their neighbours"
        assert np.array_equal(alone.motion, moving.motion)
        assert moving.motion[:, moving.targets[0]].all()
        assert not moving.motion[:, moving.targets[2] :].any()
        *others, goal = to_goal.targets
        assert to_goal.motion[:, others].all()
        assert to_goal.motion[:, goal].mean() < 0.5


def test_segments_are_laid_over_true_steps_by_time_so_missing_ones_do_not_shift_the_rest(
    world: World, tables: dict[str, pa.Table]
) -> None:
    every = take_steps(world, tables["segments"])[0]
    gone = every.segment_ids[2]
    rest = tables["segments"].filter(pc.not_equal(tables["segments"]["segment_id"], gone))
    fewer = take_steps(world, rest)[0]
    assert fewer.step.tolist() == [step for step in every.step.tolist() if step != 2]
    (group,) = window_groups([fewer], [[every.segment_ids[i] for i in (1, 3, 4)]])
    assert group.offsets == (0, 2, 3)
    own = tuple(every.segment_ids[i] for i in (1, 3, 4))
    window = Window(window_id="w", take_id=every.take_id, split="train", horizon=3, segment_ids=own)
    known = known_values(world, rest, table_of(Window, [window]))
    assert all((value >= 0).all() for value in known.values.values())


def test_tables_of_another_world_are_refused(world: World, tables: dict[str, pa.Table]) -> None:
    stranger = sample_world(world.config.replace(seed=1))
    with pytest.raises(InputError, match="is not in the simulated world"):
        take_steps(stranger, tables["segments"])
    order = np.random.default_rng(0).permutation(len(world.labels))
    renamed = tuple(
        replace(label, label_id=world.labels[i].label_id) for label, i in zip(world.labels, order, strict=True)
    )
    with pytest.raises(InputError, match="carry another label"):
        take_steps(replace(world, labels=renamed), tables["segments"])


def test_the_ceiling_does_not_depend_on_the_names_of_labels(
    world: World, tables: dict[str, pa.Table], known: ExactCeilings
) -> None:
    names = {label.label_id: f"x{i:03d}" for i, label in enumerate(reversed(world.labels))}
    renamed = replace(world, labels=tuple(replace(label, label_id=names[label.label_id]) for label in world.labels))
    ids = pa.array([names[name] for name in tables["segments"]["label_id"].to_pylist()])
    at = tables["segments"].schema.get_field_index("label_id")
    other = tables | {"segments": tables["segments"].set_column(at, "label_id", ids)}
    found = known_values(renamed, other["segments"], windows_of(other))
    assert all(np.array_equal(found.values[kind], value) for kind, value in known.values.items())


def test_a_ceiling_that_sees_more_is_higher(world: World, tables: dict[str, pa.Table], known: ExactCeilings) -> None:
    ends = [known.expected[kind].mean(axis=0) for kind in ("no_traj", "endpoint_traj", "oracle")]
    assert np.array_equal(known.values["no_traj"], known.values["endpoint_traj"]), "pixels show the motion of the head"
    assert (ends[1] < ends[2]).all()
    assert ends[1][0] < ends[2][0] - 1


def test_without_a_goal_ceilings_are_lower_and_a_row_that_sees_it_breaks_them(
    world: World, tables: dict[str, pa.Table], known: ExactCeilings
) -> None:
    """The planted leak: the best decisions with the goal, compared with those from Start alone where motion is
    uninformative."""
    windows = windows_of(tables)
    blind = known_values(world, tables["segments"], windows, kinds=KINDS_WITHOUT_GOAL)
    assert set(blind.values) == set(KINDS_WITHOUT_GOAL)
    assert calibration_check(blind).verdict == "holds"
    less = [blind.expected[kind].mean(axis=0) for kind in KINDS_WITHOUT_GOAL]
    assert np.array_equal(less[0], less[1])
    assert (less[1] < less[2]).all()
    for kind, given in zip(less, ("no_traj", "endpoint_traj", "oracle"), strict=True):
        assert (kind[: len(with_ceiling())] < known.expected[given].mean(axis=0)).all()
    silent = sample_world(world.config.replace(kappa=0.0, style=0.0))
    known, blind = (known_values(silent, tables["segments"], windows, kinds=(kind,)) for kind in ("no_traj", "start"))
    takes, take = np.unique(np.array(known.take_ids), return_inverse=True)
    both = np.concatenate([known.values["no_traj"], blind.values["start"][:, : len(with_ceiling())]], axis=1)
    sums, counts = cluster_sums(both, take, len(takes))
    leak, bound, error = paired(np.moveaxis(sums.reshape(len(takes), 2, 1, -1), 1, 0), counts[:, None])
    assert (leak - bound > ERRORS * error).all()


def given_the_last_label(world: World, tables: dict[str, pa.Table], *, is_given: bool) -> Predictions:
    """The best answers from Start alone, as No-Traj without a goal; `is_given` adds the label of the Goal."""
    windows = windows_of(tables)
    said: list[tuple[str, ...]] = [()] * windows.num_rows
    for answer in answers(world, tables["segments"], windows, ("start",)):
        best = answer.decisions.ranking[..., 0].copy()
        best[:, -1] = answer.truth[:, -1] if is_given else best[:, -1]
        for at, codes in zip(answer.rows.tolist(), best.tolist(), strict=True):
            said[at] = tuple(world.labels[code].label_id for code in codes)
    return right_predictions(tables["segments"], windows, variant="anticipation_no_traj", said=said)


def test_a_row_given_the_label_of_a_masked_goal_breaks_the_ceilings_after_start(
    world: World, tables: dict[str, pa.Table]
) -> None:
    """The planted row is no better between Start and Goal, which the other figures read."""
    for is_given, verdict in ((False, "holds"), (True, "fails")):
        rows = given_the_last_label(world, tables, is_given=is_given)
        known = known_of_predictions(world, rows, tables["segments"], windows_of(tables))
        found = {row.metric: row for row in compare(rows, known) if row.binding}
        assert list(found) == ["M@1", "MSeq", "A@1", "ASeq"]
        assert not found["M@1"].above
        assert not found["MSeq"].above
        assert found["A@1"].above == found["ASeq"].above == is_given
        assert row_check("anticipation_no_traj", list(found.values())).verdict == verdict
        scores = row_scores(rows)
        assert {row.metric for row in rows_of(TakeScore, scores)} == set(with_ceiling(has_goal=False))
        assert [one.metric for one in pair(scores, scores, CFG).metrics] == list(with_ceiling())


def test_the_ceilings_are_calibrated_and_a_wrong_model_is_detected(
    world: World, tables: dict[str, pa.Table], known: ExactCeilings
) -> None:
    assert calibration_check(known).verdict == "holds"
    order = np.random.default_rng(1).permutation(len(world.labels))
    wrong = replace(world, motion_labels=world.motion_labels[order])
    found = calibration_check(known_values(wrong, tables["segments"], windows_of(tables)))
    assert found.verdict == "fails"
    assert "oracle" in found.detail


def test_a_sequence_that_is_not_proven_the_best_counts_as_right(
    world: World, tables: dict[str, pa.Table], known: ExactCeilings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_decoding, "WIDTHS", (1,))
    narrow = known_values(world, tables["segments"], windows_of(tables))
    at = with_ceiling().index("FSeq")
    assert known.n_unproven == 0
    assert narrow.n_unproven > 0
    assert narrow.values["no_traj"][:, at].mean() > known.values["no_traj"][:, at].mean()
    assert f"{narrow.n_unproven} best sequences are not proven" in calibration_check(narrow).detail


def test_the_standard_error_is_that_of_takes_and_not_of_windows() -> None:
    rng = np.random.default_rng(0)
    effects, error = [], []
    for _ in range(400):
        per_take = rng.normal(0.0, 5.0, (40, 1, 1))
        counts = rng.integers(2, 9, (40, 2)).astype(float)
        mine = (per_take + rng.normal(0.0, 1.0, (40, 2, 1))) * counts[..., None]
        value, ceiling, se = paired(np.stack([mine, 0 * mine]), counts)
        effects.append(float(value[0] - ceiling[0]))
        error.append(float(se[0]))
    assert np.mean(error) == pytest.approx(np.std(effects), rel=0.1)
    sums = np.stack([np.full((4, 1, 6), 100.0), np.zeros((4, 1, 6))])
    assert np.isinf(paired(sums, np.ones((4, 1)))[2]).all(), "few takes have none"
    assert row_check("scorer", [cell(standard_error=math.inf, above=False)]).verdict == "not run", "and prove nothing"


def cell(**changes: object) -> Ceiling:
    values = {"value": 60.0, "ceiling": 50.0, "difference": 10.0, "standard_error": 2.0, "binding": True, "above": True}
    plain = {"variant": "scorer", "horizon": None, "metric": "M@1", "n_takes": 30, "n_windows": 300}
    return Ceiling.model_validate({**plain, **values, **changes})


def test_a_binding_figure_above_fails() -> None:
    below = cell(metric="MSeq", above=False)
    assert row_check("scorer", [cell(), below]).verdict == "fails"
    assert row_check("scorer", [below]).verdict == "holds"
    assert ceiling_checks([], None) == []


def test_every_row_but_those_that_read_the_truth_has_a_ceiling() -> None:
    assert [one.id for one in METHODS if one.ceiling is None] == ["cem_truth", "previous"]
    found = [method(row).ceiling for row in ("majority", "top1", "scorer", "oracle")]
    assert found == ["no_traj", "endpoint_traj", "endpoint_traj", "oracle"]


def test_a_corpus_without_a_world_file_has_no_ceiling_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    assert read_world("") is None
    assert read_world(str(tmp_path)) is None
    assert read_world(str(tmp_path / "absent")) is None
    config = middle_world().replace(**PLAIN)
    describe_world(config, tmp_path)
    found = read_world(str(tmp_path))
    assert found.config == config
    (tmp_path / "world.json").write_text(json.dumps({"config": {"tasks": 0}}))
    with pytest.raises(InputError, match="describes no world"):
        read_world(str(tmp_path))


# Ceilings over classes of labels: exact where classes are scored, and never compared with rows over labels.


def test_ceilings_of_classes_are_higher_than_those_of_labels_and_calibrated(
    world: World, tables: dict[str, pa.Table], known: ExactCeilings
) -> None:
    found, _ = label_classes(tables["labels"], 24)
    classes = dict(zip(found["label_id"].to_pylist(), found["class_id"].to_pylist(), strict=True))
    assert len(set(classes.values())) < len(classes)
    own = known_values(world, tables["segments"], windows_of(tables), classes)
    for kind in KINDS:
        gain = (own.expected[kind] - known.expected[kind]).mean(axis=0)
        assert (gain > 0).all(), kind
        at = with_ceiling().index("MSeq")
        assert (own.expected[kind][:, at] >= known.expected[kind][:, at] - 1e-6).all(), "window by window"
    assert calibration_check(own).verdict == "holds"
    assert own.n_unproven == 0


def test_classes_of_unknown_texts_have_no_exact_ceiling(world: World, tables: dict[str, pa.Table]) -> None:
    """Without the table of paraphrases a label is its text, and its class is unrelated to the world's label."""
    at = tables["segments"].schema.get_field_index("label_id")
    texts = tables["segments"].set_column(at, "label_id", tables["segments"]["label"])
    found = unshown(world, texts, has_classes=True)
    assert "carry a label that no step of the world has" in found
    assert unshown(world, texts, has_classes=False) is None, "over labels as before"
    assert unshown(world, tables["segments"], has_classes=True) is None
