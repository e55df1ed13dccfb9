"""A token that carries the action beats every control that was fine-tuned as long, and one that carries nothing none.

Both in the same probe, on clips whose own tokens tell nothing."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from kitchens_fixture import CFG, SMALL, TEXT, kitchens

from schemas.events import TOKEN_CONTROLS, TokenRow
from trajpilot_core.data.action_clips import load_clips
from trajpilot_core.evaluation import action_scores
from trajpilot_core.evaluation.action_scores import AnsweredRow, contrasts_of, judge_tokens
from trajpilot_core.evaluation.event_rows import TOKEN_NAMES
from trajpilot_core.models.attentive_probe import AttentiveProbe
from trajpilot_core.training.fit_probe import (
    TokenTask,
    answers,
    choose_probe,
    load_probe,
    name_of,
    new_token_probe,
    probe_task,
    train_token_probe,
)
from trajpilot_core.training.jobs import TrainingJob, put_task
from trajpilot_core.training.loop import seeded

TUNED = CFG.replace(epochs=8, rates=(1e-2,), probe=SMALL.replace(bootstrap=200))


def verdicts(folder: Path) -> dict[str, str]:
    """Check -> verdict, where Oracle's token carries the action, and that of No-Traj is noise."""
    data = load_clips(kitchens(strength=0.0))
    clips, test = probe_task(data), data.rows("test")
    rng = np.random.default_rng(0)
    codes = data.clips.classes("action")
    signs = {code: rng.normal(size=TEXT) for code in np.unique(codes).tolist()}
    carried = np.array([signs[code] for code in codes.tolist()]) / np.sqrt(TEXT)
    noise = rng.normal(size=carried.shape) / np.sqrt(TEXT)
    given = {"oracle": carried + 0.3 * noise, "no_traj": noise}
    rows = np.concatenate([data.rows("train"), data.rows("dev")])
    with seeded(0):
        begun = AttentiveProbe(clips.shape(TUNED.tuned)).state_dict()
    classes = {part: found.numpy() for part, found in clips.classes.items()}
    answered = []
    asked: tuple[TokenRow, ...] = (*TOKEN_CONTROLS, "no_traj", "oracle")
    for row in asked:
        tokens = given.get(row, np.roll(given["no_traj"], 1, axis=0)).astype(np.float16)
        task = TokenTask(**vars(clips), token=torch.from_numpy(tokens[rows]), begun=begun)
        put_task(folder / row, folder / row, task)
        config = TUNED.model_dump_json()
        job = TrainingJob(name_of(row), 0, row, folder / row / "fit", folder / row, folder / row, config, "cpu", 1e9)
        train_token_probe(job, lambda *_: None)
        chosen = choose_probe(job, TUNED.tuned)
        model = load_probe(partial(new_token_probe, row, task, TUNED), chosen, "cpu")
        found = answers(model, torch.tensor(data.tokens[test]), classes, torch.from_numpy(tokens[test]))
        answered.append(AnsweredRow(row, 0, chosen.trial.name, found))
    takes = np.unique([data.take_ids[at] for at in test], return_inverse=True)[1]
    contrasts = contrasts_of(answered, action_scores.TestedClips(data.clips.of(test), takes), TUNED)
    names = {one: one for one in TOKEN_NAMES}
    scorer = [one.replace(row="scorer") for one in contrasts if one.row == "no_traj"]  # judged alike
    return {one.check: one.verdict for one in judge_tokens([*contrasts, *scorer], names)}


def test_a_token_that_carries_the_action_beats_every_control_and_no_control_gains(tmp_path: Path) -> None:
    found = verdicts(tmp_path)
    assert found["token: oracle is above every control"] == "holds"
    assert found["token: no_traj is above every control"] != "holds", "planted: noise in the place of a prediction"
    assert {found[f"control: {row} gains nothing"] for row in TOKEN_CONTROLS[1:]} == {"holds"}
