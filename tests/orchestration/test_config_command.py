"""`trajpilot config`, `--config` and `--version`: what they print, what they change, what they refuse."""

import io
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deployments.cli.main import app, main
from deployments.cli.options import configure
from deployments.recipes import RECIPES, recipe
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES

WIDE = {"COLUMNS": "200"}


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env=WIDE)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_show_prints_a_group_with_what_a_change_makes_stale() -> None:
    text = said("config", "show", "scorer", "--recipe", "demo")
    assert "scorer.candidates" in text
    assert "16 (main experiment: 64)" in text
    assert "alignment." not in text
    assert "A change of scorer makes stale at most: scorer, evaluation, report." in text


def test_a_group_that_is_none_is_refused_with_the_groups() -> None:
    with pytest.raises(InputError, match="no setting starts with cooking; the groups are ingest, trajectories"):
        CliRunner().invoke(app, ["config", "show", "cooking"], catch_exceptions=False)


def test_diff_names_what_differs_and_nothing_between_a_recipe_and_itself() -> None:
    text = said("config", "diff", "--recipe", "atomic_closed")
    assert "evaluation.vocabulary" in text
    assert "4 settings differ; stale: text_bank, " in text
    assert "0 settings differ; no difference." in said("config", "diff", "--recipe", "demo", "--against", "demo")
    assert "1 settings differ" in said("config", "diff", "--recipe", "atomic", "--set", "scorer.candidates=32")


def test_a_group_that_one_recipe_lacks_is_shown() -> None:
    other = f'alignment.pretrained={{"place": "/other", "sha256": "{"0" * 64}"}}'
    text = said("config", "diff", "--recipe", "atomic", "--set", other)
    assert "alignment.pretrained.place " in text
    assert "absent" in text


def test_a_file_of_settings_changes_what_it_states_and_set_comes_after_it(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text('[features]\nsize_px = 256\n[predictor.train]\nepochs = 20\npatience = "null"\n')
    config = configure("atomic", ["predictor.train.epochs=7"], file)
    base = recipe("atomic")
    assert config == base.replace(
        features=base.features.replace(size_px=256),
        predictor=base.predictor.replace(train=base.predictor.train.replace(epochs=7, patience=None)),
    )


def test_a_wrong_file_is_refused_by_the_name_of_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    for content, fault in (
        ("size_px = 256\n", "size_px is outside any table; write"),
        ("[features]\nsize = 256\n", r"exp.toml, features.size: no such setting; did you mean .*features.size_px"),
        ("[features\n", "cannot be read: no TOML"),
        ("[features]\nsize_px = 17\n", "features.size_px is 17: "),
        ("[features.size_px]\nx = 1\n", "no such setting"),
    ):
        file.write_text(content)
        with pytest.raises(InputError, match=fault):
            configure("atomic", [], file)


def test_the_version_is_printed_and_help_names_recipes_and_stages() -> None:
    assert said("--version").startswith("trajpilot 0.")
    text = said("run", "--help")
    assert all(name in text for name in (*RECIPES, *STAGES))


def test_a_terminal_that_lacks_a_sign_shows_another_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen before: under LC_ALL=C a finished run ended with a traceback about the dagger of a row."""
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "argv", ["trajpilot", "config", "show", "cooking†"])
    with pytest.raises(SystemExit) as ended:
        main()
    terminal.seek(0)
    assert ended.value.code == 2
    assert "no setting starts with cooking?; the groups are" in terminal.read()
