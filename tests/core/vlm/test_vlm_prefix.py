"""The bank is computed once: answers are, token for token, those of a model that computes it for every request."""

from pathlib import Path

import pytest
import torch
from test_vlm_in_process import FRAMES, KINDS, folder_of, frame
from tiny_qwen import save_qwen

from schemas.vlm import VlmMessage, VlmPart, VlmRequest, VlmTuning
from trajpilot_core.vlm.local.folder import SEEING
from trajpilot_core.vlm.local.model import LocalModel, TunedWeights, load_model
from trajpilot_core.vlm.local.prefix import SharedPrefix, bank_end
from trajpilot_core.vlm.tuning.low_rank import TunedModel

BANK = "Labels:\n" + "\n".join(f"label number {n}" for n in range(12)) + "\n"
MORE = FRAMES | {"c": frame(2, 64)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("hub")
    return {kind: save_qwen(place / kind, kind) for kind in KINDS}


def fresh(folders: dict[str, Path], kind: str) -> LocalModel:
    return load_model(folder_of(folders[kind], kind), None, "cpu")


def asked(kind: str, rest: str, shown: tuple[str, ...] = (), bank: str = BANK, *, first: bool = True) -> VlmRequest:
    """The bank, then frames and words, or the other way round."""
    own = [VlmPart(section="frames", text="START:", frames=shown)] if shown else []
    own.append(VlmPart(section="instruction", text=rest))
    listed = VlmPart(section="bank", text=bank)
    system = VlmMessage(role="system", parts=(VlmPart(section="instruction", text="Fill."),))
    user = VlmMessage(role="user", parts=(listed, *own) if first else (*own, listed))
    sees = KINDS[kind] is SEEING
    return VlmRequest(
        question="plan" if sees else "fill",
        model=kind,
        messages=(user,) if sees else (system, user),
        items=3,
        max_tokens=12,
    )


def requests_of(kind: str, *, first: bool = True) -> list[VlmRequest]:
    """Texts of different lengths; of a model that sees, with frames and, after them, without."""
    shown: list[tuple[str, ...]] = [("a",), ("c", "b"), (), ("b",)] if KINDS[kind] is SEEING else [()] * 4
    return [asked(kind, f"Name {n} steps{'!' * n}", one, first=first) for n, one in enumerate(shown)]


def answers(model: LocalModel, requests: list[VlmRequest]) -> tuple[list[str], torch.Tensor]:
    """What is answered, and all numbers behind it: of every token written, one for each that the model knows."""
    plain, seen = model.network.generate, []

    def noting(**inputs):
        done = plain(**inputs, return_dict_in_generate=True, output_logits=True)
        seen.extend(done.logits)
        return done.sequences

    model.network.generate = noting
    try:
        return [model.answer(one, MORE).text for one in requests], torch.cat(seen)
    finally:
        del model.network.generate


def unshared(model: LocalModel, requests: list[VlmRequest], monkeypatch: pytest.MonkeyPatch):
    """The same where the whole prompt is computed for each request."""
    with monkeypatch.context() as changed:
        changed.setattr(LocalModel, "_shared", lambda self, request, ids: ids[:0])
        return answers(model, requests)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_without_sharing_and_the_bank_is_computed_once(folders, kind: str, monkeypatch) -> None:
    requests = requests_of(kind)
    model = fresh(folders, kind)
    texts, numbers = answers(model, requests)
    n_in = sum(len(one.messages[-1].parts[0].text.encode()) for one in requests)
    assert model.prefix.n_reused >= (len(requests) - 1) * len(BANK.encode()), "a token a byte: all but the first"
    assert model.prefix.n_computed + model.prefix.n_reused > n_in
    expected, theirs = unshared(fresh(folders, kind), requests, monkeypatch)
    assert texts == expected
    torch.testing.assert_close(numbers, theirs, rtol=1e-4, atol=1e-4)
    assert (theirs[0] - theirs[12]).abs().max() > 1e-2, "another question has other numbers"


def test_with_the_papers_order_nothing_is_shared(folders, monkeypatch) -> None:
    for kind in ("qwen3_vl", "qwen3_moe"):
        requests = requests_of(kind, first=False)[:2]
        model = fresh(folders, kind)
        assert answers(model, requests)[0] == unshared(model, requests, monkeypatch)[0]
        assert model.prefix.n_reused == 0


@pytest.mark.parametrize("kind", ["qwen3_vl", "qwen3_moe"])
def test_a_bank_that_differs_by_one_token_is_computed_anew(folders, kind: str, monkeypatch) -> None:
    shown = ("a",) if KINDS[kind] is SEEING else ()
    other = BANK.replace("label number 7\n", "label number 8\n")
    requests = [asked(kind, "Go.", shown), asked(kind, "Go.", shown, other)]
    model = fresh(folders, kind)
    texts, numbers = answers(model, requests)
    assert model.prefix.n_reused == 0
    expected, theirs = unshared(fresh(folders, kind), requests, monkeypatch)
    assert texts == expected
    torch.testing.assert_close(numbers, theirs, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(SharedPrefix, "begins", lambda self, ids_T, *, is_tuned: True)
    planted = answers(fresh(folders, kind), requests)[1]
    assert (planted[: len(theirs)] - theirs[: len(planted)]).abs().max() > 1e-2, "the comparison would see it"


def test_a_tuned_model_answers_with_and_without_its_weights_as_it_does_unshared(folders, monkeypatch) -> None:
    """Plain questions share the bank, segments are asked between them, and tuned weights never read plain keys."""
    kind, cfg = "qwen3_vl", VlmTuning()
    folder = folder_of(folders[kind], kind)
    made = TunedModel(load_model(folder, None, "cpu").network, cfg)
    for added in made.added.values():
        torch.nn.init.normal_(added.up_OR, std=0.1)
    tuned = TunedWeights(cfg, made.state_dict())
    plain, other = asked(kind, "Go.", ("a",)), asked(kind, "Go on.", ("b",))
    segment = asked(kind, "Which?", ("c",), first=False).replace(adapter="mine")
    requests = [plain, segment, other, plain.replace(adapter="mine"), plain]
    model = load_model(folder, None, "cpu", tuned)
    texts, numbers = answers(model, requests)
    expected, theirs = unshared(load_model(folder, None, "cpu", tuned), requests, monkeypatch)
    assert texts == expected
    torch.testing.assert_close(numbers, theirs, rtol=1e-4, atol=1e-4)
    assert len(BANK) < model.prefix.n_reused < 2 * len(BANK), "of the second plain question alone"
    monkeypatch.setattr(SharedPrefix, "begins", lambda self, ids_T, *, is_tuned: True)
    planted = answers(load_model(folder, None, "cpu", tuned), requests)[1]
    shown = min(len(planted), len(theirs))
    assert (planted[:shown] - theirs[:shown]).abs().max() > 1e-2, "the comparison would see it"


def test_tuned_weights_have_keys_of_their_own() -> None:
    ids = torch.arange(9)
    held = SharedPrefix(ids[:4], None, is_tuned=False)
    assert held.begins(ids, is_tuned=False)
    assert not held.begins(ids, is_tuned=True)
    assert not held.begins(ids[:4], is_tuned=False), "something has to be left to compute"
    assert not held.begins(torch.tensor([0, 1, 2, 4, 4]), is_tuned=False)


def test_a_request_that_breaks_off_leaves_nothing_behind(folders, monkeypatch) -> None:
    kind = "qwen3_vl"
    requests = requests_of(kind)
    expected, theirs = unshared(fresh(folders, kind), requests, monkeypatch)
    model = fresh(folders, kind)
    assert model.answer(requests[0], MORE).text == expected[0]
    with monkeypatch.context() as broken:
        broken.setattr(type(model.network), "generate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.answer(requests[1], MORE)
    texts, numbers = answers(model, requests)
    assert texts == expected
    torch.testing.assert_close(numbers, theirs, rtol=1e-4, atol=1e-4)


def interrupted(self, **inputs) -> None:
    inputs["past_key_values"].layers[0].keys.zero_()
    raise KeyboardInterrupt


def test_only_a_bank_that_stands_before_all_else_ends_what_is_shared() -> None:
    seen = asked("qwen3_vl", "Go.", ("a",))
    assert bank_end(seen, f"<user>{BANK}START") == len(f"<user>{BANK}")
    assert bank_end(seen, "<user>another bank") == 0, "a template that rewrites it shares nothing"
    assert bank_end(asked("qwen3_vl", "Go.", ("a",), first=False), f"START{BANK}") == 0
