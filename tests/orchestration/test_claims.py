"""The claims as a flow: worlds as tasks in processes of their own, then tables and pages."""

from pathlib import Path

import pytest
from checkout import CHECKOUT
from page_blocks import blocks_of

from schemas.claims import ClaimsConfig, ClaimsRun
from schemas.config import PipelineConfig
from schemas.training import TrainConfig
from trajpilot_core.studies.pages import write_pages

TEXTS = ("claims.md", "scorer.md", "reproduction.md")
"""Pages of text with computed blocks: renewed where they are."""


def quick() -> PipelineConfig:
    """Trainings of one epoch: this is about orchestration, not about accuracy."""
    base = PipelineConfig()
    short = TrainConfig(epochs=1, patience=None, batch=64)
    return base.replace(
        ingest=base.ingest.replace(video="full", dev_min=1, central_share=0.6),
        features=base.features.replace(model="tiny", size_px=64, n_frames=2, batch=16),
        text_bank=base.text_bank.replace(encoder="bag_of_words", bag_width=32),
        alignment=base.alignment.replace(width=16, layers=1, heads=2, hidden=16, folds=1, train=short),
        predictor=base.predictor.replace(width=16, layers=1, heads=2, hidden=16, queries=1, train=short),
        evaluation=base.evaluation.replace(bootstrap=100),
    )


def committed_pages(docs: Path) -> Path:
    """Copy the pages of text as they are committed, each computed block as another run would have left it."""
    docs.mkdir()
    for name in TEXTS:
        page = (CHECKOUT / "docs" / name).read_text()
        for block, text in blocks_of(page).items():
            page = page.replace(text, "| of another run |") if text and block != "decisions" else page
        (docs / name).write_text(page)
    return docs


def problems_of(docs: Path, run: ClaimsRun) -> list[str]:
    """Return what is wrong with the pages after a run of two worlds of the sweep with recipes that nobody fixed."""
    wanted = {
        ("claims.md", "facts"): f"{run.config_digest[:12]}, NOT what was fixed",
        ("claims.md", "verdicts"): "| not run |",
        ("claims.md", "checks"): "Every row lies below its ceiling: not run",
        ("scorer.md", "gate"): "The identity: not run.",
        ("scorer.md", "source"): "Nothing is attributed",
        ("reproduction.md", "ours 2"): "Not run: no table of the claims here",
    }
    problems = []
    for name in TEXTS:
        page, before = (folder / name for folder in (docs, CHECKOUT / "docs"))
        if not page.is_file():
            problems.append(f"{name} is not there")
            continue
        text, blocks = page.read_text(), blocks_of(page.read_text())
        problems += [
            f"{name}, {block} does not say {said!r}"
            for (of, block), said in wanted.items()
            if of == name and said not in blocks[block]
        ]
        if blocks.keys() != blocks_of(before.read_text()).keys() or prose_of(text) != prose_of(before.read_text()):
            problems.append(f"{name} has lost prose")
    return problems


def prose_of(page: str) -> str:
    """Return a page without its computed blocks."""
    for block in blocks_of(page).values():
        page = page.replace(block, "")
    return page


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_worlds_are_tasks_and_pages_say_what_was_run(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import claims as flow_module
    from trajpilot_core.studies.claims.worlds import collect
    from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, make

    cfg = ClaimsConfig()
    sizes = {"tasks": 2, "positions": 4, "alternatives": 2, "train_takes": 10, "test_takes": 6, "segments": 9}

    def small(name: str) -> PlannedWorld:
        world = make(name, cfg.single_seed, cfg)
        return world._replace(world=world.world.replace(**sizes))

    good, bad = small("sweep_k3_s2"), small("sweep_k3_s4")
    (tmp_path / "runs" / bad.folder / "world").mkdir(parents=True)
    (tmp_path / "runs" / bad.folder / "world" / "world.json").write_text("{}")
    monkeypatch.setattr(flow_module, "chosen", lambda config, names: (good, bad))
    monkeypatch.setattr(collect, "planned", lambda config: (good, bad))
    monkeypatch.setattr(flow_module, "require_fixed", lambda config, recipe: None)
    docs = committed_pages(tmp_path / "docs")
    run = flow_module.claims_worlds(quick(), root=str(tmp_path / "runs"), docs=str(docs), device="cpu")
    by_world = {world.name: [job for job in run.jobs if job.world == world.name] for world in (good, bad)}
    assert {job.status for job in by_world[good.name]} == {"done"}
    assert by_world[bad.name][0].status == "failed"
    assert "describes another world" in by_world[bad.name][0].note
    assert {job.status for job in by_world[bad.name][1:]} == {"not run"}
    page = (docs / "claims.html").read_text()
    assert "Simulated world" in page
    assert "describes another world" in page
    assert problems_of(docs, run) == []
    for name in ("claims/scores.parquet", "claims/run.json"):
        assert (docs / name).is_file()


def test_pages_that_a_run_has_not_renewed_are_found(tmp_path: Path) -> None:
    """The planted faults of the check above: pages as they were, one that is gone, one whose prose was lost."""
    docs = committed_pages(tmp_path / "docs")
    run = ClaimsRun(date="2026-11-21", config_digest="0" * 64, machines=("2 cores",), device="cpu", jobs=())
    assert {problem.split()[0].rstrip(",") for problem in problems_of(docs, run)} == set(TEXTS)
    (docs / "claims").mkdir()
    (docs / "claims" / "run.json").write_text(run.model_dump_json())
    write_pages(docs)
    assert problems_of(docs, run) == []
    (docs / "claims.md").write_text((docs / "claims.md").read_text().replace("head motion", "nothing"))
    (docs / "scorer.md").unlink()
    assert problems_of(docs, run) == ["claims.md has lost prose", "scorer.md is not there"]


def test_the_deployment_runs_the_recipes_that_are_fixed_for_the_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    from deployments import claims as deployment
    from deployments.recipes.worlds import claims

    seen: list[object] = []

    class Recorded:
        """Stands in for the flow."""

        def with_options(self, **options: object) -> "Recorded":
            return self

        def __call__(self, *arguments: object) -> str:
            seen.extend(arguments)
            return "run"

    monkeypatch.setattr(deployment, "claims_worlds", Recorded())
    assert deployment.claims.fn("root", "docs", 3, "cpu", ("base",)) == "run"  # type: ignore[comparison-overlap]
    assert seen == [claims(), "root", "docs", "cpu", ("base",)]
