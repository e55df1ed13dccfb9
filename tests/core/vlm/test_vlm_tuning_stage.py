"""The tuning as a stage: one training under the executor, whose weights the stage `vlm` asks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from stored_world import UPSTREAM, options, stages_on
from tiny_qwen import save_qwen
from vlm_fixture import SIZE, TEXT, Shards, made_up_frames, settings, world

from deployments.recipes import recipe
from schemas.base import canonical_json
from schemas.config import PipelineConfig, RunOptions
from schemas.training import TrainConfig
from schemas.vlm import VlmConfig, VlmTuning
from trajpilot_core.doctor.vlm_weights import check_tuning
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.engine.key import resolve_inputs
from trajpilot_core.engine.needs import NeedsMachine
from trajpilot_core.engine.resolve import resolve_config
from trajpilot_core.engine.sizes import paper_sizes
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import CheckpointError, InputError, LeakError
from trajpilot_core.stages import STAGES, stages_of, vlm, vlm_tuning
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.tensors import Models
from trajpilot_core.vlm.cost.tuning import added_numbers, tuning_memory
from trajpilot_core.vlm.local.folder import SEEING, TUNABLE, model_folder
from trajpilot_core.vlm.local.model import TunedWeights, load_model
from trajpilot_core.vlm.local.shape import model_shape
from trajpilot_core.vlm.take import first_round
from trajpilot_core.vlm.tuning import fit, pairs
from trajpilot_core.vlm.tuning.low_rank import TunedModel

TRAIN = TrainConfig(epochs=1, patience=None, batch=4, lr=1e-2, min_lr=0.0, weight_decay=0.0, precision="fp32")
SMALL = VlmTuning(is_asked=True, rounds=2, dev_segments=2, train=TRAIN)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("hub")
    return {kind: save_qwen(place / kind, kind) for kind in ("qwen3_vl", "qwen3_vl_moe", "qwen3_moe")}


def asked(base: dict[str, Path], folder: Path, **changes: object) -> VlmConfig:
    own = {"model": str(base["qwen3_vl"]), "filler": str(base["qwen3_moe"]), "backend": "transformers"}
    own |= {"rows": ("qwen_sft_llm",), "tuning": SMALL, "exemplars": 1, "new_tokens": 8, "segment_tokens": 8}
    return settings(folder, **(own | {"windows_per_horizon": 1} | changes))


def configured(cfg: VlmConfig) -> PipelineConfig:
    return PipelineConfig(vlm=cfg, text_bank=TEXT)


@pytest.fixture(scope="module")
def memory() -> Shards:
    return world(replace(SIZE, train=2, dev=1, test=1))


def stages(memory: Shards) -> dict[str, AnyStage]:
    """What the two stages read, as a run of the small world leaves it; and they."""
    known = stages_on(memory)
    return {name: known[name] for name in UPSTREAM} | {"vlm_tuning": vlm_tuning.STAGE, "vlm": vlm.STAGE}


def ran(root: Path, memory: Shards, config: PipelineConfig, *names: str) -> dict[str, Outcome]:
    known = stages(memory)
    run = options(root, checkpoint_s=0)
    return {name: execute(known[name], config, run, known) for name in known if name in names or not names}


def weights(root: Path, memory: Shards, config: PipelineConfig) -> Models:
    stage = vlm.STAGE.under(config)
    return resolve_inputs(LocalFolder(str(root)), stage, stages(memory)).models(vlm_tuning.ENTRY)


def bytes_of(models: Models) -> dict[str, bytes]:
    (key,) = models.keys
    return {name: value.tobytes() for name, value in models.read(key).items()}


@pytest.fixture(scope="module")
def whole(base, memory, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PipelineConfig]:
    """A root in which everything was tuned and asked without a break."""
    folder = tmp_path_factory.mktemp("whole")
    config = configured(asked(base, folder))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("trajpilot_core.vlm.frames.take_frames", made_up_frames)
        done = ran(folder / "root", memory, config)
    assert (done["vlm_tuning"].reused, done["vlm_tuning"].computed) == (0, 1)
    assert done["vlm"].computed > 0
    return folder / "root", config


def test_a_training_that_was_killed_goes_on_to_the_same_bytes(base, memory, whole, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("trajpilot_core.vlm.frames.take_frames", made_up_frames)
    root, config = whole
    plain, n_rounds = fit.next_batches, []

    def killed(*told):
        n_rounds.append(1)
        if len(n_rounds) == 2:
            raise KeyboardInterrupt
        return plain(*told)

    monkeypatch.setattr(fit, "next_batches", killed)
    own = configured(config.vlm.replace(answers=str(tmp_path / "answers")))
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path, memory, own, *UPSTREAM, "vlm_tuning")
    done = ran(tmp_path, memory, own, "vlm_tuning")["vlm_tuning"]
    assert (done.computed, len(n_rounds)) == (1, 3), "the round that had ended is not done again"
    assert bytes_of(weights(tmp_path, memory, own)) == bytes_of(weights(root, memory, config))
    assert ran(tmp_path, memory, own, "vlm_tuning")["vlm_tuning"].reused == 1


def test_segments_are_asked_of_the_tuned_model_and_nothing_else_is(base, memory, whole, monkeypatch) -> None:
    root, config = whole
    monkeypatch.setattr("trajpilot_core.vlm.frames.take_frames", made_up_frames)
    stage = vlm.STAGE.under(config)
    inputs = resolve_inputs(LocalFolder(str(root)), stage, stages(memory))
    cfg = resolve_config(vlm.STAGE, config, options(root))
    asking = vlm.asking_of(inputs, cfg)
    assert asking.config.adapter == vlm.recogniser_name(inputs)
    tuned = vlm.tuned_weights(inputs, cfg)
    assert tuned is not None
    folder = model_folder("x", cfg.model, SEEING)
    one, plain = load_model(folder, None, "cpu", tuned), load_model(folder, None, "cpu")
    answers = {row["request"]: row for row in inputs_answers(root, memory)}
    from trajpilot_core.engine.stage import Runtime, Work

    work = Work(inputs, cfg, (), None, Runtime("", "cpu", 1, root))
    source = vlm.STAGE.sources(inputs, cfg, "")[0]
    assert source.facts["recogniser"] == asking.config.adapter
    take, images, _ = vlm.take_of(source, work)
    units = first_round(asking, take)
    assert {unit.request.adapter for unit in units} == {asking.config.adapter}
    told = [answers[unit.request.digest()] for unit in units]
    assert [row["text"] for row in told] == [one.answer(unit.request, images).text for unit in units]
    assert all(row["answered_by"].endswith(f" with {asking.config.adapter}") for row in told)
    untuned = [plain.answer(unit.request.replace(adapter=None), images).text for unit in units]
    assert [row["text"] for row in told] != untuned
    assert [one.answer(unit.request.replace(adapter=None), images).text for unit in units] == untuned, "switched off"


def inputs_answers(root: Path, memory: Shards) -> list[dict]:
    reading = replace(STAGES["report"], reads=("vlm_answers",))
    return resolve_inputs(LocalFolder(str(root)), reading, stages(memory)).table("vlm_answers").to_pylist()


def test_only_what_decides_the_weights_tunes_again_and_other_weights_are_asked_again(
    base, memory, whole, monkeypatch
) -> None:
    monkeypatch.setattr("trajpilot_core.vlm.frames.take_frames", made_up_frames)
    root, config = whole
    more = configured(config.vlm.replace(new_tokens=9, windows_per_horizon=2, filler=str(base["qwen3_moe"])))
    assert ran(root, memory, more, "vlm_tuning")["vlm_tuning"].computed == 0
    again = ran(root, memory, config, "vlm_tuning", "vlm")
    assert (again["vlm_tuning"].computed, again["vlm"].computed) == (0, 0)
    other = configured(config.vlm.replace(tuning=SMALL.replace(seed=8)))
    done = ran(root, memory, other, "vlm_tuning", "vlm")
    assert done["vlm_tuning"].computed == 1
    assert done["vlm"].computed == again["vlm"].reused > 0


def test_a_pair_of_a_test_take_stops_the_stage(base, memory, tmp_path, monkeypatch) -> None:
    config = configured(asked(base, tmp_path))
    cfg = resolve_config(vlm_tuning.STAGE, config, options(tmp_path))
    assert len(vlm_tuning.STAGE.sources(memory, cfg, "")) == 1
    monkeypatch.setattr(pairs, "sample_of", lambda held, n, seed: pairs.pairs_of(memory, "test"))
    with pytest.raises(LeakError, match="is of test; nothing was tuned"):
        vlm_tuning.STAGE.sources(memory, cfg, "")


def test_other_models_weights_are_refused(base, whole, memory) -> None:
    root, config = whole
    held = weights(root, memory, config)
    state = {name: torch.from_numpy(np.array(value)) for name, value in held.read(held.keys[0]).items()}
    folder = model_folder("x", str(base["qwen3_vl"]), SEEING)
    load_model(folder, None, "cpu", TunedWeights(SMALL, state))
    name = next(name for name in state if name.endswith("down_RI"))
    with pytest.raises(CheckpointError, match=r"the tuned weights are another model's: .*size mismatch"):
        load_model(folder, None, "cpu", TunedWeights(SMALL, state | {name: state[name][:, 1:]}))


def test_a_tuning_that_does_not_fit_the_other_settings_is_refused(base, tmp_path: Path) -> None:
    cfg = asked(base, tmp_path)
    for change, said in (
        ({"rows": ("qwen_zs",)}, r"add qwen_sft_llm to vlm\.rows"),
        ({"rows": ()}, r"add qwen_sft_llm to vlm\.rows"),
        ({"adapter": "mine"}, r"vlm\.adapter=mine name two recognisers"),
        ({"backend": "http"}, r"vlm\.backend=http answers elsewhere; .*`trajpilot vlm tune`"),
    ):
        with pytest.raises(InputError, match=said):
            stages_of(configured(cfg.replace(**change)))


def test_a_run_has_the_stage_only_where_it_asks_and_no_other_key_changes(base, tmp_path: Path) -> None:
    plain = recipe("vlm_sft")
    own = plain.replace(vlm=plain.vlm.replace(backend="transformers"))
    tuning = own.replace(vlm=own.vlm.replace(tuning=VlmTuning(is_asked=True)))
    names = list(stages_of(tuning))
    assert set(names) - set(stages_of(own)) == {"vlm_tuning"}
    assert names.index("vlm_tuning") < names.index("vlm") < names.index("evaluation")
    assert "vlm_adapter" in vlm.STAGE.under(tuning).reads
    assert "vlm_adapter" not in vlm.STAGE.under(own).reads
    assert {"vlm_tuning_curves", "vlm_tuning.rejects"} <= set(STAGES["report"].under(tuning).reads)
    assert "is_asked" not in canonical_json(VlmTuning(rank=4).content())
    run = RunOptions(device="cpu")
    for name in STAGES:
        if name != "report":
            one, other = (resolve_config(STAGES[name], config, run).content() for config in (own, tuning))
            assert one == other, name


def test_what_tuning_takes_is_stated_and_another_kind_stops_the_run(base, tmp_path: Path) -> None:
    run = RunOptions(root=str(tmp_path / "root"), data_root=str(tmp_path), device="cpu")
    config = configured(asked(base, tmp_path))
    found = {one.what: one for one in check_tuning(config, run)}
    assert {name: one.verdict for name, one in found.items()} == {
        "weights of vlm_tuning": "ok",
        "memory of vlm_tuning": "ok",
        "hours of vlm_tuning": "note",
    }
    assert "an estimate, nothing was measured" in found["hours of vlm_tuning"].found
    moe = configured(config.vlm.replace(model=str(base["qwen3_vl_moe"])))
    (bad,) = check_tuning(moe, run)
    assert bad.verdict == "bad"
    assert "model_type qwen3_vl_moe; what can answer there is qwen3_vl" in bad.found
    assert check_tuning(configured(VlmConfig()), run) == []


def test_the_stage_needs_the_model_and_the_added_weights_are_counted_as_they_are(base, tmp_path: Path) -> None:
    shape = model_shape(model_folder("x", str(base["qwen3_vl"]), TUNABLE), "x")
    network = load_model(model_folder("x", str(base["qwen3_vl"]), TUNABLE), None, "cpu").network
    added = sum(one.numel() for one in TunedModel(network, SMALL).parameters())
    assert added_numbers(shape, SMALL.rank) == added
    kept, recomputed = (tuning_memory(shape, 100, SMALL, recomputes=one) for one in (False, True))
    assert kept.bytes > recomputed.bytes > shape.weight_bytes + 16 * added
    config = configured(asked(base, tmp_path))
    cfg, sizes = resolve_config(vlm_tuning.STAGE, config, options(tmp_path)), paper_sizes(config)
    here, there = (vlm_tuning.STAGE.needs(sizes, cfg, NeedsMachine(device, 1)) for device in ("cpu", "cuda"))
    assert here.host.bytes > there.device.bytes > there.host.bytes
    assert here.scratch.bytes == 2 * kept.checkpoint
    off = vlm_tuning.STAGE.needs(sizes, cfg.replace(tuning=VlmTuning()), NeedsMachine("cpu", 1))
    assert off.host.bytes < here.host.bytes
