"""The attentive probe on every patch: clips are decoded and encoded in every epoch, all trials of a grid at once."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from kitchens_fixture import CFG as TOKEN_CFG
from kitchens_fixture import Kitchens, clip_details, clip_features, with_motion
from planning_fixture import on_cpu
from planning_world import Memory, run_stage
from trajectory_fixture import good_take
from video_fixture import decoded_here, write_video

from schemas.annotation import SegmentDetails, Take
from schemas.arrow import arrow_schema, rows_of, table_of
from schemas.config import FeatureConfig, PipelineConfig
from schemas.events import TOKEN_ROWS, ProbeConfig, ProbeScore
from schemas.features import PATCH_PX, TUBELET
from schemas.results import CurvePoint, Judgement
from schemas.training import TrainConfig
from trajpilot_core.data.action_clips import load_clips
from trajpilot_core.encoders.video.frozen_vjepa import normalised
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.errors import InputError, NotBuiltError
from trajpilot_core.models.attentive_probe import AttentiveProbe
from trajpilot_core.stages import EVERY_STAGE as STAGES
from trajpilot_core.stages import action_token, probe
from trajpilot_core.stages.full_probe import stream_of
from trajpilot_core.training import clip_stream, fit_full_probe
from trajpilot_core.training.checkpoint import TrainingProgress
from trajpilot_core.training.clip_stream import (
    Augment,
    ClipStream,
    ClipView,
    ErasedPart,
    as_shown,
    erased_part,
    in_order,
    open_encoder,
)
from trajpilot_core.training.fit_full_probe import GridProbe
from trajpilot_core.training.fit_probe import ChosenProbe, ProbeTask, grid, probe_task
from trajpilot_core.training.loop import EpochDone, TrainedPart, build_optimizer
from trajpilot_core.video.isolate import Event

RATE_HZ, FRAMES, SIZE_PX = 8, 4, 32
COLOURS = ((220, 30, 30), (30, 220, 30), (30, 30, 220))
"""Of an action each."""
VIDEOS = {"train": 3, "dev": 1, "test": 1}
STARTS_S = (2.5, 3.0)
"""Of the actions of a video."""
ENCODER = FeatureConfig(
    model="tiny", n_frames=FRAMES, size_px=SIZE_PX, tokens="temporal", ahead_tubelets=4, batch=4, precision="fp32"
)
FULL = ProbeConfig(
    tokens="full",
    heads=4,
    blocks=1,
    rates=(1e-3, 1e-5),
    decays=(1e-3,),
    epochs=2,
    batch=4,
    precision="fp32",
    bootstrap=100,
    encoder=ENCODER,
)


def filmed(folder: Path) -> Kitchens:
    """Write the videos below a folder; return segments, details, features and takes."""
    segments, details, times, takes = [], [], [], []
    for split, n_videos in VIDEOS.items():
        for number in range(n_videos):
            action, take = number % len(COLOURS), f"epic:{split}_{number}"
            video = f"{split}_{number}.mp4"
            write_video(folder / video, 4 * RATE_HZ, width=48, height=48, fps=RATE_HZ, colour=COLOURS[action])
            clock = {"duration_s": 4.0, "fps": float(RATE_HZ), "n_frames": 4 * RATE_HZ}
            takes.append(good_take(take_id=take, name=take, split=split, capture=take, video=video, **clock))
            for position, at_s in enumerate(STARTS_S):
                one = f"{take}:{position:04d}"
                segments.append({"segment_id": one, "take_id": take, "split": split})
                details.append(clip_details(one, take, (action, action), at_s, False))
                times.append((at_s - 1.0 - np.arange(FRAMES)[::-1] / RATE_HZ).tolist())
    memory = Kitchens()
    memory.tables["segments"] = pa.Table.from_pylist(segments)
    memory.tables["details"] = pa.Table.from_pylist(details, schema=arrow_schema(SegmentDetails))
    memory.tables["features"] = clip_features(segments, times, np.zeros((len(times), FRAMES // 2 * 16)), FRAMES // 2)
    memory.tables["takes"] = table_of(Take, takes)
    return memory


NAME = "final/s0/probe"
N_TEST = len(STARTS_S) * VIDEOS["test"]
ONE = FULL.replace(epochs=1, rates=(1e-3,))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("videos")


@pytest.fixture(scope="module")
def memory(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Kitchens:
    """The stage on tiny videos."""
    with decoded_here():
        memory = filmed(data)
        run_stage(STAGES["probe"], FULL, memory, tmp_path_factory.mktemp("probe"), 1, str(data))
        return memory


@pytest.fixture(scope="module")
def stream(memory: Kitchens, data: Path, tmp_path_factory: pytest.TempPathFactory) -> ClipStream:
    folder = tmp_path_factory.mktemp("stream")
    runtime, clips = Runtime(data_root=str(data), device="cpu", workers=1, scratch=folder), load_clips(memory, 256)
    rows = [row for split in ("train", "dev") for row in clips.rows(split).tolist()]
    return stream_of(memory, runtime, clips, open_encoder(ENCODER, "cpu", folder)).of(rows)


def test_every_trial_has_a_curve_on_dev_and_training_and_dev_chooses_one(memory: Kitchens) -> None:
    curve = rows_of(CurvePoint, memory.tables["probe_curves"])
    models = {"final/probe", "final/probe, rate 1e-05, decay 0.001"}
    scored = {(p.model, p.split, p.epoch) for p in curve if p.quantity == "Action"}
    assert scored == {(model, split, epoch) for model in models for split in ("train", "dev") for epoch in (1, 2)}
    assert {(p.model, p.epoch) for p in curve if p.quantity == "loss"} == {(m, e) for m in models for e in (1, 2)}
    scores = [one for one in rows_of(ProbeScore, memory.tables["probe_scores"]) if one.row == "probe"]
    assert {one.n_clips for one in scores if (one.subset, one.space) == ("overall", "challenge")} == {N_TEST}
    assert {row.verdict for row in rows_of(Judgement, memory.tables["probe_checks"])} == {"holds"}
    assert set(memory.entries["probe_models"].weights) == {NAME}


def visual_grid(task: ProbeTask, cfg: ProbeConfig) -> list[GridProbe]:
    return [GridProbe("final/probe", trial, lambda: AttentiveProbe(task.shape(cfg))) for trial in grid(cfg)]


def are_equal(one: ChosenProbe, other: ChosenProbe) -> bool:
    return all(torch.equal(one.weights[name], value) for name, value in other.weights.items())


@pytest.fixture
def fitted(stream: ClipStream, memory: Memory, decoded_here: None) -> Callable[..., ChosenProbe]:
    """Fit in a folder under settings; optionally with what is told of epochs and the seconds between checkpoints."""

    def fitted(
        folder: Path, cfg: ProbeConfig, told: EpochDone = lambda *_: None, checkpoint_s: float = 1e9
    ) -> ChosenProbe:
        task = probe_task(load_clips(memory, 256))
        runtime = dataclasses.replace(on_cpu(folder, checkpoint_s=checkpoint_s), progress=told)
        return fit_full_probe.fit_side_by_side(visual_grid(task, cfg), 0, task, cfg, stream, runtime)["final/probe"]

    return fitted


def test_a_trial_next_to_others_is_what_it_is_alone(
    fitted: Callable[..., ChosenProbe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_of_all(found: TrainingProgress, name: str, members: list[GridProbe]) -> ChosenProbe:
        """The first trial, whatever dev says."""
        begins = "probes.0."
        weights = {key.removeprefix(begins): value for key, value in found.best.items() if key.startswith(begins)}
        return ChosenProbe(members[0].trial, weights, [])

    alone = fitted(tmp_path / "alone", ONE)
    monkeypatch.setattr(fit_full_probe, "chosen_of", first_of_all)
    grid = ONE.replace(rates=(1e-3, 1e-2))
    assert are_equal(alone, fitted(tmp_path / "both", grid))
    real = fit_full_probe.original_training
    monkeypatch.setattr(  # planted: gradients are clipped over all trials together
        fit_full_probe, "original_training", lambda cfg, trial: real(cfg, trial).replace(clip=1e-3)
    )
    assert not are_equal(fitted(tmp_path / "clipped", ONE), fitted(tmp_path / "coupled", grid))


class Killed(Exception):
    """The process is gone."""


def test_a_killed_training_goes_on_after_its_last_epoch_with_the_same_views(
    fitted: Callable[..., ChosenProbe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(folder: Path, dies_after: int = 0) -> ChosenProbe:
        def told(epoch: int, epochs: int, line: str) -> None:
            if epoch == dies_after:
                raise Killed

        return fitted(folder, ONE.replace(epochs=2), told, 0.0)

    def killed(folder: Path) -> ChosenProbe:
        with pytest.raises(Killed):
            ended(folder, dies_after=1)
        return ended(folder)

    whole, resumed = ended(tmp_path / "whole"), killed(tmp_path / "killed")
    assert whole.curve == resumed.curve
    assert are_equal(whole, resumed)
    other = np.random.default_rng(0)
    monkeypatch.setattr(  # planted: views that no checkpoint knows
        clip_stream, "uniform", lambda bounds, generator: float(other.uniform(*bounds))
    )
    assert killed(tmp_path / "planted").curve != whole.curve


@pytest.mark.usefixtures("decoded_here")
def test_clips_read_one_by_one_have_the_gradients_of_the_batch(memory: Kitchens, stream: ClipStream) -> None:
    task, found = probe_task(load_clips(memory, 256)), []
    for clips_at_once in (1, 4):
        cfg = ONE.replace(clips_at_once=clips_at_once)
        members = visual_grid(task, cfg)
        own = fit_full_probe.FullFit(fit_full_probe.ProbeGrid(members, 0), members, task, cfg, stream, 0)
        loss = own.loss(own.begin(torch.Generator().manual_seed(0))[0])
        loss.backward()
        own.pending.close()  # type: ignore[attr-defined]
        found.append((loss, [p.grad for p in own.grid.parameters()]))
    (one, by_one), (whole, at_once) = found
    torch.testing.assert_close(one, whole)
    for a, b in zip(by_one, at_once, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("decoded_here")
def test_the_tokens_are_all_patches_and_those_of_one_tubelet_ahead(stream: ClipStream) -> None:
    patches = (SIZE_PX // PATCH_PX) ** 2
    (tokens,) = stream.tokens([[stream.whole(0), stream.whole(1)]])
    assert tokens.shape == (2, patches * (FRAMES // TUBELET + 1), 256)
    sooner = stream.whole(0)._replace(ahead=1)
    (other,) = stream.tokens([[sooner]])
    torch.testing.assert_close(other[:, :-patches], tokens[:1, :-patches])
    assert not torch.allclose(other[:, -patches:], tokens[:1, -patches:], rtol=1e-2, atol=1e-2)


def test_training_views_have_random_gaps_and_parts_and_dev_has_the_clip_of_the_features(stream: ClipStream) -> None:
    generator = torch.Generator().manual_seed(0)
    views = [stream.sampled(0, FULL, generator) for _ in range(200)]
    gaps = stream.action_s[0] - (stream.times_s[0, -1] + np.array([view.later_s for view in views]))
    assert gaps.min() >= 0.25 - 1e-9
    assert gaps.max() <= 1.75 + 1e-9
    assert gaps.max() - gaps.min() > 1.0
    assert {view.ahead for view in views} == set(range(1, 8)) - {7} | {7 for g in gaps if g >= 1.75}
    augments = [view.augment for view in views]
    assert len({augment.seed for augment in augments if augment}) == len(views)
    assert {augment._replace(seed=0) for augment in augments if augment} == {
        Augment(0, 4, 7.0, 0.5, (0.08, 1.0), (3 / 4, 4 / 3))
    }
    assert stream.whole(0) == ClipView(0, 0.0, 4)
    assert 0.35 < np.mean([view.is_mirrored for view in views]) < 0.65
    erased = [view.erased for view in views if view.erased is not None]
    assert 0.12 < len(erased) / len(views) < 0.4
    assert {0.02 - 1e-9 <= part.width * part.height <= 1 / 3 + 1e-9 for part in erased} == {True}
    plain = FULL.replace(random_gap_s=None, rand_augment=None, crop_scale=None, mirror_share=0.0, erase_share=0.0)
    assert stream.sampled(0, plain, generator) == stream.whole(0)


def test_a_view_is_mirrored_and_noise_stands_in_one_rectangle_of_every_frame() -> None:
    pictures = torch.zeros(3, 32, 32, 3, dtype=torch.uint8)
    pictures[:, :, 24:] = 200
    left = as_shown(pictures, ClipView(0, is_mirrored=True))
    assert (int(left[:, :, :8].min()), int(left[:, :, 8:].max())) == (200, 0)
    view = ClipView(0, erased=ErasedPart(7, 0.25, 0.5, 0.5, 0.25))
    found = as_shown(pictures, view)
    assert torch.equal(found, as_shown(pictures, view))
    assert not torch.equal(found, as_shown(pictures, view._replace(erased=view.erased._replace(seed=8))))
    inside = torch.zeros(32, 32, dtype=torch.bool)
    inside[16:24, 8:24] = True
    assert torch.equal(found[:, ~inside], pictures[:, ~inside])
    noise = normalised(found[None])[0][:, :, inside]
    assert abs(float(noise.mean())) < 0.1
    assert 0.85 < float(noise.std()) < 1.05
    assert not torch.equal(found[0], found[1]), "every pixel of every frame has noise of its own"
    assert int(pictures.max()) == 200, "the decoded clip stays as it is"


def test_a_decoder_process_augments_what_it_decodes_and_ends_the_training_with_the_name_of_a_clip_that_it_cannot_read(
    stream: ClipStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens of an augmented clip depend on its seed alone. Planted: a view behind the end of the video."""
    whole, view = stream.whole(0), stream.sampled(0, FULL, torch.Generator().manual_seed(0))
    assert view.augment is not None
    seeds = [view.augment.seed, view.augment.seed, view.augment.seed + 1]
    views = [whole, *(whole._replace(augment=view.augment._replace(seed=seed)) for seed in seeds)]
    plain, one, again, other = next(stream.tokens([views]))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(one, plain)
    monkeypatch.setattr(clip_stream, "ERASED_SCALE", (0.9, 1.0))
    monkeypatch.setattr(clip_stream, "ERASED_RATIO", (3.0, 4.0))
    assert erased_part(0, torch.Generator()) == ErasedPart(0), "nothing fits: all of it"
    with pytest.raises(InputError, match=r"a clip of train_0.mp4, shifted by \+9.000 s"):
        list(stream.tokens([[whole._replace(later_s=9.0)]]))


def test_clips_come_in_their_order_whatever_decoder_ends_first() -> None:
    def events(order: tuple[int, ...]) -> Iterator[Event]:
        for job in order:
            yield Event(job, "clip", {"segment": 0}, np.full((1, 2, 2, 3), job, np.uint8))
            yield Event(job, "done")

    views = [ClipView(row) for row in range(3)]
    assert [int(clip[0, 0, 0, 0]) for clip in in_order(events((2, 0, 1)), views, "abc")] == [0, 1, 2]


@pytest.mark.usefixtures("decoded_here")
def test_rows_with_a_token_are_fine_tuned_on_every_patch_that_another_encoder_sees(
    memory: Kitchens, data: Path, tmp_path: Path
) -> None:
    """The predictor reads features 16 wide, the probes patches 256 wide."""
    memory = with_motion(Kitchens(dict(memory.tables), dict(memory.entries)))
    short = TOKEN_CFG.train.replace(epochs=1)
    cfg = TOKEN_CFG.replace(probe=ONE, epochs=1, rates=(3e-3,), train=short)
    run_stage(action_token.STAGE, cfg, memory, tmp_path, 1, str(data))
    guards = ("sight", "leak")
    checks = rows_of(Judgement, memory.tables["token_checks"])
    assert {row.verdict for row in checks if row.check.split(":")[0] in guards} == {"holds"}
    assert {row.row for row in rows_of(ProbeScore, memory.tables["token_scores"])} == {*TOKEN_ROWS}
    curve = [p for p in rows_of(CurvePoint, memory.tables["token_tuned_curves"]) if p.quantity == "Action"]
    assert {p.model.split(",")[0] for p in curve} == {f"probe/{row}" for row in TOKEN_ROWS}
    assert len(curve) == len(TOKEN_ROWS) * len(cfg.rates) * 2 * cfg.epochs, "trials, splits, epochs"
    weights = memory.entries["token_models"].weights
    before = memory.entries["probe_models"].weights[NAME]
    for row in TOKEN_ROWS:
        tuned = weights[f"final/s0/probe_{row}"]
        assert any((tuned[f"probe.{name}"] != value).any() for name, value in before.items())
    visual, given = (weights[f"final/s0/probe_{row}"]["probe.verb_classifier.weight"] for row in ("visual", "no_traj"))
    assert (visual != given).any(), "the token has no effect"


def test_full_tokens_are_refused_where_nothing_can_be_encoded(
    memory: Kitchens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = ENCODER.model_copy(update={"source": "released"})
    with pytest.raises(InputError, match=r"set features.source=encoded"):
        probe.sources(memory, FULL.model_copy(update={"encoder": released}), "")
    monkeypatch.setattr("trajpilot_core.training.clip_stream.load_video_encoder", lambda *_: object())
    with pytest.raises(NotBuiltError, match="every patch, but the encoder tiny does not return patches"):
        open_encoder(ENCODER, "cpu", tmp_path)


def test_videos_and_weights_are_read_under_full_alone(memory: Kitchens) -> None:
    (source,) = probe.sources(memory, FULL, "")
    assert set(source.files) == {f"{split}_{n}.mp4" for split, count in VIDEOS.items() for n in range(count)}
    (plain,) = probe.sources(memory, ProbeConfig(tokens="temporal"), "")
    assert plain.files == ()
    assert set(plain.facts) == set(probe.READS)
    config = PipelineConfig()
    asked = config.replace(probe=config.probe.replace(tokens="full"))
    assert STAGES["probe"].under(asked).reads == (*probe.READS, "takes")
    assert (probe.completed(asked).encoder, probe.completed(config)) == (asked.features, config.probe)
    with pytest.raises(ValueError, match=r"n_frames of probe.encoder is 32, but features.n_frames is 16"):
        asked.replace(probe=asked.probe.replace(encoder=asked.features.replace(n_frames=32)))


def test_a_rate_of_a_part_is_a_multiple_of_that_of_the_training() -> None:
    parts = [TrainedPart(torch.nn.Linear(2, 2), times, decay) for times, decay in ((1.0, 0.1), (0.5, 0.2))]
    groups = build_optimizer(torch.nn.ModuleList(p.module for p in parts), TrainConfig(), "cpu", parts).param_groups
    found = [(group["times"], group["weight_decay"]) for group in groups]
    assert found == [(1.0, 0.1), (1.0, 0.0), (0.5, 0.2), (0.5, 0.0)]
