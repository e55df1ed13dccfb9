"""Sections of the claims page: distances between segments, and the trainings with their learning curves."""

from collections import defaultdict

from schemas.claims import BASE
from trajpilot_core.claims.contrasts import TRAINED
from trajpilot_core.claims.judge import Judged
from trajpilot_core.claims.markdown import name, picture, section, table
from trajpilot_core.claims.page_claims import geometry_rows
from trajpilot_core.claims.plots import Key, Panel, bare_line, keys_of, sheet
from trajpilot_core.claims.tables import Evidence
from trajpilot_core.evaluation.paper_claims import model_of
from trajpilot_core.report.charts import Axes, line_chart
from trajpilot_core.report.figures import DEV_QUANTITIES

TRAINING_TEXT = """\
A model counts as trained where it beats two rows without a model on dev, and dev has not risen by over a point in
the last quarter of its epochs (`docs/decisions/training.md`). The epoch is chosen on dev. Whether all predictors
had one budget, and the Scorer and its twins another, is one of the *Leak checks*; E_tau and Scorer+ have their own.
"""


def geometry_section(judged: tuple[Judged, ...]) -> str:
    """Return the differences between neighbouring mean distances."""
    header = ["world", "difference of mean distances", "figure [95 %]", "each seed", "takes"]
    return section("Distances between segments", table(header, geometry_rows(judged)), level=3)


def training_section(evidence: Evidence) -> str:
    """Return which models are trained, and their learning curves."""
    grouped: dict[tuple[str, str], list[tuple[int, str, str]]] = defaultdict(list)
    for place, judgement in evidence.judgements:
        if judgement.check.startswith(TRAINED):
            chain = judgement.check.removeprefix(TRAINED).split(",")[0]
            grouped[place.world, chain].append((place.seed, judgement.verdict, judgement.detail))
    lines = [
        [world, chain, _trained(found), "; ".join(f"seed {seed}: {detail}" for seed, _, detail in sorted(found))]
        for (world, chain), found in grouped.items()
        if world == BASE or any(told != "holds" for _, told, _ in found)
    ]
    n_models = sum(len(found) for found in grouped.values())
    n_weak = sum(told != "holds" for found in grouped.values() for _, told, _ in found)
    return section(
        "Appendix: trainings and their learning curves",
        TRAINING_TEXT,
        f"{n_models} models judged, {n_weak} not trained. Listed: those of `{BASE}`, and others where one is not.",
        table(["world", "model", "verdict", "dev"], lines),
        picture("curves.svg", "Dev score by epoch, rendered world"),
    )


def _trained(found: list[tuple[int, str, str]]) -> str:
    """Say how many seeds of a model are trained."""
    good = sum(told == "holds" for _, told, _ in found)
    return "trained" if good == len(found) else f"**UNDERTRAINED** ({len(found) - good} of {len(found)})"


def curves_picture(evidence: Evidence) -> bytes:
    """Draw the dev score that selects the epoch, for chain `final` in the rendered world, a line per seed."""
    rows = [
        (place.seed, point)
        for place, point in evidence.curves
        if place.world == BASE and point.model.startswith("final/") and point.split == "dev" and point.epoch > 0
    ]
    panels: list[Panel] = []
    keys: list[Key] = []
    for model in sorted({point.model for _, point in rows}):
        own = [(seed, point) for seed, point in rows if point.model == model]
        chosen = next((q for q in DEV_QUANTITIES if any(point.quantity == q for _, point in own)), None)
        series = [
            bare_line(
                f"seed {seed}",
                f"seed{seed % 3}",
                sorted((float(p.epoch), 100 * p.value) for s, p in own if (s, p.quantity) == (seed, chosen)),
            )
            for seed in sorted({seed for seed, _ in own})
        ]
        last = max(point.epoch for _, point in own)
        ticks = tuple(float(epoch) for epoch in _ticks(last))
        title = f"{name(model_of(model))}: dev {chosen}"
        panels.append(Panel(title, line_chart(Axes(title, "epoch", f"dev {chosen}, %", ticks), series)))
        keys = keys_of(series)
    return sheet(panels or [Panel("learning curves", line_chart(Axes("", "", "", ()), []))], keys)


def _ticks(last: int) -> range:
    """Return about five epochs."""
    step = max(1, round(last / 5))
    return range(step, last + 1, step)
