"""How planners are compared with their originals: foreign files are borrowed, weights have counterparts, times pair."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkout import DATA
from torch import nn

from benchmarks.planners import __main__ as command
from benchmarks.planners import ratio as ratio_module
from benchmarks.planners.fixtures import COMMAND, PARTS, document
from benchmarks.planners.formula import fill, numbers
from benchmarks.planners.originals import SCHEMA_RULES, load, module_of, renamed
from benchmarks.planners.pdpp_original import importable
from benchmarks.planners.ratio import LEAST_S, Ratio, compare

LARGEST = 60_000


@pytest.mark.parametrize("name", PARTS)
def test_recorded_answers_are_small_and_say_where_they_come_from(name: str) -> None:
    text = (DATA / "planners" / name).read_text()
    assert len(text) < LARGEST
    assert re.search(r'"origin": "github.com/\S+/\S+ at [0-9a-f]{40}; renewed by `' + re.escape(COMMAND), text)


def test_recorded_numbers_are_rounded_and_one_part_is_a_line() -> None:
    text = document("there", {"a": {"b": torch.tensor([1 / 3])}, "c": [2]})
    assert text.splitlines() == [
        "{",
        f'"origin": "there; renewed by `{COMMAND}`",',
        '"a": {"b":[0.333333343267]},',
        '"c": [2]',
        "}",
    ]


def test_an_original_s_modules_are_imported_without_a_trace(tmp_path: Path) -> None:
    folder = tmp_path / "THEIRS" / "models"
    folder.mkdir(parents=True)
    (folder / "inner.py").write_text("VALUE = 3\n")
    (folder / "outer.py").write_text("from models.inner import VALUE\n")
    path, known = list(sys.path), set(sys.modules)
    assert module_of(tmp_path, "THEIRS", "outer").VALUE == 3
    assert sys.path == path
    assert set(sys.modules) == known


def test_packages_that_pdpp_wants_are_replaced_while_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "outer.py").write_text("import einops\nfrom model.inner import VALUE\n")
    (tmp_path / "model" / "inner.py").write_text("VALUE = 3\n")
    path, known = list(sys.path), set(sys.modules)
    with importable(tmp_path):
        outer = importlib.import_module("model.outer")
    assert outer.VALUE == 3
    assert outer.einops.rearrange(torch.zeros(1, 2, 3), "b h t -> b t h").shape == (1, 3, 2)
    assert sys.path == path
    assert set(sys.modules) == known


def test_query_key_and_value_become_one_matrix_under_the_original_s_name() -> None:
    front = "state_decoder.decoder.layers.0"
    state = {
        f"{front}.own.attention.query.weight": torch.zeros(2, 2),
        f"{front}.own.attention.key_value.weight": torch.ones(4, 2),
        f"{front}.memory.norm.bias": torch.zeros(2),
    }
    found = renamed(state, SCHEMA_RULES)
    assert set(found) == {f"{front}.self_attn.attention.in_proj_weight", f"{front}.cross_attn.ln.bias"}
    assert found[f"{front}.self_attn.attention.in_proj_weight"].sum(dim=1).tolist() == [0, 0, 2, 2, 2, 2]


def test_a_weight_without_counterpart_is_refused_by_name() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="bias"):
        load(layer, {"weight": torch.zeros(2, 2)})
    assert load(layer, {"weight": torch.zeros(2, 2)}, unused=["bias"]).weight.sum() == 0


def test_the_formula_gives_full_rank_and_leaves_norms_near_one() -> None:
    assert torch.linalg.matrix_rank(numbers(12, 12)) == 12
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    fill(module, scale=0.3)
    assert module[0].weight.abs().max() <= 0.3
    assert (module[1].weight - 1).abs().max() <= 0.3


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that moves only where somebody sleeps."""
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(ratio_module.time, "perf_counter", lambda: now_s[0])
    return sleep


def test_both_are_warmed_up_and_then_timed_in_turn(sleep: Callable[[float], None]) -> None:
    calls: list[str] = []

    def slow(name: str) -> None:
        calls.append(name)
        sleep(LEAST_S)

    ratio = compare("x", lambda: slow("ours"), lambda: slow("theirs"), wanted=2.0, repeats=2)
    assert calls == ["ours", "ours", "theirs", "theirs", *["ours", "theirs"] * 2]
    assert ratio.factor == pytest.approx(1)
    assert Ratio("x", 0.5, 2.0, 3.0).factor == 4.0


def test_what_is_quick_is_called_several_times_and_a_call_is_reported(sleep: Callable[[float], None]) -> None:
    calls: list[str] = []

    def quick() -> None:
        calls.append("ours")
        sleep(LEAST_S / 20)

    ratio = compare("x", quick, lambda: sleep(LEAST_S), wanted=1.0, repeats=1)
    assert len(calls) >= 2 + 20
    assert (ratio.ours_s, ratio.theirs_s) == pytest.approx((LEAST_S / 20, LEAST_S))


@pytest.mark.parametrize(("theirs_s", "status"), [(4.0, 0), (2.0, 1)])
def test_a_ratio_below_what_is_wanted_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], theirs_s: float, status: int
) -> None:
    monkeypatch.setattr(command, "PARTS", {"x": lambda _: [Ratio("a part", 1.0, theirs_s, 3.0)]})
    monkeypatch.setattr(sys, "argv", ["planners", "--original", "."])
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    assert command.main() == status
    assert (
        f"a part: ours 1.0000 s, the original {theirs_s:.4f} s, {theirs_s:.1f} times (wanted 3)"
        in capsys.readouterr().out
    )
