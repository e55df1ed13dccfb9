"""The state encoder that SCHEMA and ViterbiPlanNet share: which side is compared with which, what is dropped when."""

import torch
from formula import fill
from planner_cases import SENTENCES, SHAPE, WINDOWS, batch
from torch.nn import functional as F
from torch.testing import assert_close

from schemas.planners import SchemaConfig
from trajpilot_core.models.planners.state_encoder import StateEncoder, contrast_loss


def encoder(input_dropout: float = 0.4) -> StateEncoder:
    module = StateEncoder(SchemaConfig(width=16, heads=4, input_dropout=input_dropout), SHAPE).eval()
    fill(module)
    return module


def test_start_is_compared_with_sentences_before_and_goal_with_sentences_after() -> None:
    module, given = encoder(), batch(3)
    encoded = module(given.features, given.descriptions)
    for end, sentences in ((0, range(3)), (1, range(3, SENTENCES))):
        each = [F.cosine_similarity(encoded.states[:, end, None], encoded.sentences[:, s], dim=-1) for s in sentences]
        want = torch.stack(each).mean(dim=0) * module.log_temperature.exp()
        assert_close(encoded.logits[:, end], want)


def test_the_temperature_starts_at_the_configured_one_and_is_not_clamped() -> None:
    module, given = StateEncoder(SchemaConfig(width=16), SHAPE).eval(), batch(3)
    assert_close(module.log_temperature.exp().item(), 1 / 0.07)
    cold = module(given.features, given.descriptions).logits
    with torch.no_grad():
        module.log_temperature += 5.0
    assert_close(module(given.features, given.descriptions).logits, cold * torch.tensor(5.0).exp())


def test_training_drops_features_and_descriptions_and_evaluation_nothing() -> None:
    module, given = encoder(), batch(3)
    first, second = (module(given.features, given.descriptions) for _ in range(2))
    assert torch.equal(first.states, second.states)
    torch.manual_seed(0)
    dropped = module.train()(given.features, given.descriptions)
    torch.manual_seed(0)
    assert_close(dropped.sentences, module.sentences(F.dropout(given.descriptions, 0.4)))
    assert_close(dropped.states, module.features(F.dropout(given.features, 0.4)))


def test_all_windows_of_a_step_share_one_mask_of_the_descriptions() -> None:
    module, given = encoder().train(), batch(3)
    alike = given.features[:1].expand(WINDOWS, -1, -1)
    module.features[0].register_forward_pre_hook(lambda _, inputs: (alike,))
    logits = module(alike, given.descriptions).logits
    assert_close(logits, logits[:1].expand_as(logits))


def test_the_loss_asks_for_the_first_action_at_start_and_the_last_at_goal() -> None:
    logits, labels = torch.zeros(2, 2, 4), torch.tensor([[0, 3, 1], [2, 0, 3]])
    for window, (start, goal) in enumerate([(0, 1), (2, 3)]):
        logits[window, 0, start] = logits[window, 1, goal] = 50.0
    assert contrast_loss(logits, labels) < 1e-6
    assert contrast_loss(logits.flip(1), labels) > 10
