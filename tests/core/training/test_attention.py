"""Retrieval attention: what it reads, what a variant is blind to, and that it learns what retrieval shows."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from attention_fixture import (
    ATTENTION,
    STATES,
    attention_memory_task,
    copying_task,
    fit_attention,
    with_near,
    with_strange_neighbours,
)
from torch import Tensor
from torch.testing import assert_close
from trainings_fixture import EMBED, LABELS, LEARNING, clear_task, drawn, memory_task, units, values

from schemas.training import ATTENTION_VARIANTS, AttentionConfig, AttentionVariant
from trajpilot_core.models import retrieval_attention
from trajpilot_core.models.retrieval_attention import (
    GIVEN,
    AttentionShape,
    FoundWindows,
    RetrievalAttention,
    SegmentTables,
    ShownInputs,
    VariantInputs,
    inputs_of,
)
from trajpilot_core.retrieval.neighbours import Neighbours
from trajpilot_core.training.dev_scores import floor_scores

HORIZON, WINDOWS, NEAR, FEATURES = 5, 3, 4, 10
ERRORS = 3.0
"""Standard errors by which a share may lie above its floor."""


def tables(seed: int = 0) -> SegmentTables:
    """Segments of windows first, then those of what is retrieved for them."""
    n = WINDOWS * HORIZON * (1 + NEAR)
    g = drawn(seed)
    features = torch.randn(n, 1, FEATURES, generator=g).half()
    labels = torch.randint(LABELS, (n,), generator=g)
    return SegmentTables(features, units(n, EMBED, seed=seed), torch.randn(n, STATES, generator=g), labels)


def found() -> FoundWindows:
    own, pool = torch.arange(WINDOWS * HORIZON * (1 + NEAR)).split([WINDOWS * HORIZON, WINDOWS * HORIZON * NEAR])
    cosine = torch.rand(WINDOWS, NEAR, 2, generator=drawn(1))
    there = torch.ones(WINDOWS, NEAR, dtype=torch.bool)
    return FoundWindows(own.view(WINDOWS, HORIZON), pool.view(WINDOWS, NEAR, HORIZON), cosine, there)


def a_model(cfg: AttentionConfig = ATTENTION, *, reads: bool = True) -> RetrievalAttention:
    """A model that reads, as after some steps, or one as it is before the first."""
    torch.manual_seed(0)
    model = RetrievalAttention(cfg, AttentionShape(FEATURES, 1, EMBED, HORIZON, STATES)).eval()
    if reads:
        with torch.no_grad():
            for read in model.reads:
                read.attention.out.weight.normal_(std=0.5, generator=drawn(2))
    return model


@torch.no_grad()
def plan(
    model: RetrievalAttention,
    variant: AttentionVariant,
    of: SegmentTables | None = None,
    windows: FoundWindows | None = None,
    shown: ShownInputs | None = None,
) -> Tensor:
    inputs = inputs_of(tables() if of is None else of, found() if windows is None else windows, variant, shown)
    out: Tensor = model(*inputs, units(LABELS, EMBED), HORIZON)
    return out


def sees(variant: AttentionVariant) -> VariantInputs:
    """What changes the answers of a variant: motion of the ends, motion of what was retrieved, its labels."""
    model, own = a_model(), WINDOWS * HORIZON
    before, of = plan(model, variant), tables()

    def is_changed(**changes: Tensor) -> bool:
        return not torch.equal(plan(model, variant, of._replace(**changes)), before)

    def moved(rows: slice) -> dict[str, Tensor]:
        latents, states = of.latents.clone(), of.states.clone()
        latents[rows], states[rows] = -latents[rows], -states[rows]
        return {"latents": latents, "states": states}

    labels = of.labels.clone()
    labels[own:] = (labels[own:] + 1) % LABELS
    return VariantInputs(
        is_changed(**moved(slice(own))), is_changed(**moved(slice(own, None))), is_changed(labels=labels)
    )


@pytest.mark.parametrize("variant", ATTENTION_VARIANTS)
def test_a_variant_is_blind_to_what_it_is_not_given(variant: AttentionVariant) -> None:
    assert sees(variant) == GIVEN[variant]


def test_a_variant_that_is_given_more_than_it_says_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    said = dict(GIVEN)
    monkeypatch.setattr(retrieval_attention, "GIVEN", dict.fromkeys(ATTENTION_VARIANTS, GIVEN["both"]))
    assert [variant for variant in ATTENTION_VARIANTS if sees(variant) == said[variant]] == ["both"]


@pytest.mark.parametrize("part", ["latents", "states"])
def test_latents_and_states_of_both_sides_are_read(part: str) -> None:
    of, own = tables(), WINDOWS * HORIZON
    for rows in (slice(own), slice(own, None)):
        changed = getattr(of, part).clone()
        changed[rows] = -changed[rows]
        assert not torch.equal(plan(a_model(), "both", of._replace(**{part: changed})), plan(a_model(), "both"))


def test_motion_between_the_ends_and_true_labels_are_never_read() -> None:
    of, mids = tables(), found().segments[:, 1:-1].flatten()
    changed = [value.clone() for value in of]
    for value in changed:
        value[mids] = value[mids + WINDOWS * HORIZON]
    changed[3][: WINDOWS * HORIZON] += 1
    assert torch.equal(plan(a_model(), "both", SegmentTables(*changed)), plan(a_model(), "both"))


def test_a_later_step_never_changes_an_earlier_one_nor_an_end() -> None:
    model = a_model(ATTENTION.replace(layers=3, reads=2))
    before = plan(model, "both")
    with torch.no_grad():
        model.planner.step[3] += 1.0  # the last middle step alone has it
    after = plan(model, "both")
    assert torch.equal(after[:, [0, 1, 2, 4]], before[:, [0, 1, 2, 4]])
    assert not torch.equal(after[:, 3], before[:, 3])


def test_before_its_first_step_it_is_its_predictor() -> None:
    model, of = a_model(reads=False), tables()
    nothing = torch.zeros(WINDOWS, HORIZON, EMBED)
    first, last = found().segments[:, 0], found().segments[:, -1]
    with torch.no_grad():
        plain = model.planner(of.features[first], of.features[last], nothing, HORIZON)
    assert torch.equal(plan(model, "no_motion"), plain)
    assert not torch.equal(plan(a_model(), "no_motion"), plain)


def test_a_window_without_neighbours_reads_the_null_token() -> None:
    model, none = a_model(), found()._replace(is_there=torch.zeros(WINDOWS, NEAR, dtype=torch.bool))
    dropped = ShownInputs(torch.ones(WINDOWS).bool(), torch.zeros(WINDOWS).bool())
    alone = plan(model, "alone")
    assert torch.isfinite(alone).all()
    assert_close(plan(model, "both", windows=none), alone)
    assert_close(plan(model, "both", shown=dropped), alone)
    with torch.no_grad():
        model.nothing += 1.0
    assert not torch.equal(plan(model, "alone"), alone)


def test_motion_that_is_dropped_is_motion_that_is_not_given() -> None:
    model = a_model()
    dropped = ShownInputs(torch.zeros(WINDOWS).bool(), torch.ones(WINDOWS).bool())
    assert torch.equal(plan(model, "both", shown=dropped), plan(model, "no_motion"))


def test_a_neighbour_that_is_not_there_is_not_read() -> None:
    some = found().is_there.clone()
    some[:, 1] = False
    pool = found().pool.clone()
    pool[:, 1] = 0
    one, other = (
        plan(a_model(), "both", windows=found()._replace(is_there=some, pool=p)) for p in (found().pool, pool)
    )
    assert torch.equal(one, other)


def test_where_nothing_moves_and_nothing_is_retrieved_all_variants_train_alike(tmp_path: Path) -> None:
    """Equal parameters, batches, steps and dropout: what differs between variants is what they are given.

    Weights are not compared: where a gradient is zero but for rounding (keys that shift all alike), AdamW makes a step
    of the rounding.
    """
    task = with_near(memory_task())
    still = replace(task.plan, latents=torch.zeros_like(task.plan.latents))
    near = {
        part: {h: Neighbours(torch.full_like(one.entry, -1), one.cosine) for h, one in of.items()}
        for part, of in task.near.items()
    }
    config = ATTENTION.replace(
        dropout=0.2, retrieval_dropout=0.3, motion_dropout=0.3, train=LEARNING.replace(epochs=2, batch=16)
    )
    empty = replace(task, plan=still, states=torch.zeros_like(task.states), near=near)
    made = {variant: fit_attention(empty, variant, tmp_path, config) for variant in ATTENTION_VARIANTS}
    first, curve = made["both"]
    for weights, other in made.values():
        assert {name: value.shape for name, value in weights.items()} == {n: v.shape for n, v in first.items()}
        for split, quantity in (("train", "loss"), ("train", "M@1"), ("dev", "M@1")):
            one, two = (torch.tensor(values(of, split, quantity)) for of in (curve, other))
            assert_close(one, two, atol=1e-5, rtol=1e-5)


def test_it_memorises_64_windows_that_teach_nothing_about_others(tmp_path: Path) -> None:
    longer = ATTENTION.replace(train=LEARNING.replace(epochs=50))
    curve = fit_attention(attention_memory_task(), "both", tmp_path, longer)[1]
    train, dev = (values(curve, split, "M@1") for split in ("train", "dev"))
    assert train[0] < 0.3
    assert train[-1] > 0.95
    assert dev[-1] < 0.3


SHORT = ATTENTION.replace(train=LEARNING.replace(epochs=6))


@pytest.mark.parametrize(("variant", "learns"), [("both", True), ("no_motion", True), ("alone", False)])
def test_what_retrieved_labels_decide_is_learned_by_who_reads_them(
    variant: AttentionVariant, learns: bool, tmp_path: Path
) -> None:
    dev = values(fit_attention(copying_task(), variant, tmp_path, SHORT)[1], "dev", "M@1")
    assert (max(dev) > 0.9) if learns else (max(dev) < 0.3)


def test_with_the_neighbours_of_others_it_falls_to_the_majority(tmp_path: Path) -> None:
    task = with_strange_neighbours(copying_task())
    labels = [{h: task.plan.labels[rows] for h, rows in part.items()} for part in (task.plan.fit, task.plan.dev)]
    floor = floor_scores(*labels, LABELS)["majority"]["M@1"]
    dev = values(fit_attention(task, "both", tmp_path, SHORT)[1], "dev", "M@1")
    assert dev[-1] <= floor + ERRORS * (floor * (1 - floor) / 240) ** 0.5


def test_features_alone_teach_it_what_they_teach_a_predictor(tmp_path: Path) -> None:
    dev = values(fit_attention(with_near(clear_task()), "no_motion", tmp_path, SHORT)[1], "dev", "M@1")
    assert max(dev) > 0.5


def test_settings_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ValueError, match="3 reads need as many blocks, and there are 2 layers"):
        AttentionConfig(layers=2, reads=3)
    with pytest.raises(ValueError, match="named twice"):
        AttentionConfig(variants=("both", "both"))
