"""Training curves: loss and the score that selects the epoch, on dev and on training takes. Never a test figure."""

import re
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from schemas.arrow import rows_of
from schemas.planners import PLANNERS
from schemas.results import CurvePoint
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Chart, Point, Series
from trajpilot_core.report.drawing.row_styles import SPARE
from trajpilot_core.report.drawing.sheets import svg
from trajpilot_core.report.figures.base import Drawn, Figure, NothingToDraw
from trajpilot_core.report.tables.table import row_name

NAMES = {
    "e_tau": "trajectory encoder",
    "traj": "with trajectories",
    "probe": "attentive probe",
    "traj_goal_dropout": "with trajectories, goal dropout",
    "endpoint_traj_goal_dropout": "motion of the ends, goal dropout",
    "next_none": "next step",
    "next_text": "next step, given its text",
    "next_trajectory": "next step, given its motion",
    "next_both": "next step, given both",
    "plan_none": "latent No-Traj",
    "plan_trajectory": "latent planner",
    "latent_head": "labels of latents (another loss)",
}
PLANNER = re.compile(rf"({'|'.join(PLANNERS)})_h(\d+)")
"""Name of a planner's model: its row and its horizon."""
LOSS, L1 = "loss", "-l1"
"""A distance in latents; every other score is a share."""
DEV_QUANTITIES = ("selection", "M@1", "R@5", "Mid mAcc", "Action", L1, "right", "action", "accuracy")
"""Scores that select the epoch: of those that were measured on dev, the first counts."""
WORDS = {"selection": "M@1 behind the gate"}
THIN = ", thin: training takes"
MOST_POINTS = 100
"""Points of a line: a chart is 300 pixels wide, and a picture must fit into Prefect's database."""


class DrawnModel(NamedTuple):
    """A model whose curves are drawn."""

    rows: Sequence[CurvePoint]
    name: str
    """As printed, with the selected epoch."""
    style: str
    quantity: str
    """The dev score that selects its epoch; empty where none was measured."""
    kept: int
    """The selected epoch; 0 without a dev score."""

    def line(self, split: str, quantity: str) -> list[Series]:
        """Return one quantity over the epochs, with a mark at the selected one; none where it was not measured."""
        rows = [row for row in self.rows if (row.split, row.quantity) == (split, quantity)]
        if not rows:
            return []
        step = max(1, round(len(rows) / MOST_POINTS))
        shown = [row for at, row in enumerate(rows, 1 - len(rows)) if at % step == 0 or row.epoch == self.kept]
        scale = 1.0 if quantity in (LOSS, L1) else 100.0
        points = tuple(Point(row.epoch, row.value * scale) for row in shown)
        if split == "train" and quantity != LOSS:
            return [Series(f"{self.name}, training takes", self.style, points, "thin")]
        return [Series(self.name, self.style, points, "line", (self.kept,) if self.kept else ())]


def training_charts(curves: Sequence[tuple[str, Sequence[CurvePoint]]]) -> list[list[Chart]]:
    """Return, per (stage, its curve rows), the training loss and the score that selects the epoch: `final`, first seed.

    The score is that of dev; thin lines show the same score on a sample of the training takes. Marks show the selected
    epochs. Every planner of another paper has its own charts, because their losses are not comparable.

    Returns:
        charts, by what shares a legend.
    """
    charts = []
    for stage, rows in curves:
        groups: dict[str, list[DrawnModel]] = {}
        for name, of_model in shown_rows(rows).items():
            planner = PLANNER.fullmatch(name)
            title = row_name(planner[1]) if planner else stage
            printed = f"{title}, H={planner[2]}" if planner else NAMES.get(name, row_name(name))
            group = groups.setdefault(title, [])
            group.append(_model(of_model, printed, [*SPARE][len(group) % len(SPARE)]))
        for title, models in groups.items():
            charts.append([_chart(f"{title}: training loss", models, LOSS, "train")])
            for quantity in DEV_QUANTITIES:  # models with the same score share a chart
                members = [model for model in models if model.quantity == quantity]
                name = f"{title}: dev {WORDS.get(quantity, quantity)}"
                charts[-1] += [_chart(name, members, quantity, "dev")] if members else []
    return charts


def shown_rows(rows: Sequence[CurvePoint]) -> dict[str, list[CurvePoint]]:
    """Return model -> its epochs that are drawn: chain `final`, first seed, only the selected learning rate.

    The model of the selected rate is not named after the rate (`training.jobs.Fit.result`).
    """
    final = [row for row in rows if row.model.startswith("final/") and "," not in row.model and row.epoch > 0]
    first = min((row.seed for row in final), default=0)
    models: dict[str, list[CurvePoint]] = {}
    for row in sorted(final, key=lambda row: (row.model, row.epoch)):
        if row.seed == first:
            models.setdefault(row.model.removeprefix("final/"), []).append(row)
    return models


def _model(rows: Sequence[CurvePoint], name: str, style: str) -> DrawnModel:
    """Find the dev score that selects the epoch, and that epoch: the first of the best (training.loop.note_epoch)."""
    on_dev = {row.quantity for row in rows if row.split == "dev"}
    quantity = next((quantity for quantity in DEV_QUANTITIES if quantity in on_dev), "")
    scores = [row for row in rows if (row.split, row.quantity) == ("dev", quantity)]
    kept = max(scores, key=lambda row: (row.value, -row.epoch)).epoch if scores else 0
    return DrawnModel(rows, f"{name}: epoch {kept}" if kept else name, style, quantity, kept)


def _chart(title: str, models: Sequence[DrawnModel], quantity: str, split: str) -> Chart:
    """Return one quantity over the epochs: a line per model, thin lines for training takes."""
    thin = [line for model in models for line in model.line("train", quantity)] if split != "train" else []
    lines = [*thin, *(line for model in models for line in model.line(split, quantity))]
    is_share = quantity not in (LOSS, L1)
    return Chart(title + (THIN if thin else ""), "epoch", f"{quantity}, %" if is_share else quantity, lines, is_share)


def draw(committed: Committed, stage: str) -> Drawn:
    """Draw the charts of one stage's trainings in one picture."""
    charts = training_charts([(stage, rows_of(CurvePoint, committed.table(stage, f"{stage}_curves")))])
    if not charts:
        raise NothingToDraw("nothing was trained")
    return Drawn(
        svg([*chain.from_iterable(charts)], committed.warning(), columns=2, is_themed=False).encode(),
        "Loss on the training takes, and the score on dev takes that selects the epoch. Mark and legend show the "
        "selected epoch. Chain `final`, first seed. No loss is computed on dev takes; no test take is used.",
    )


PICTURES = tuple(
    Figure("curves", title, (stage,), partial(draw, stage=stage))
    for stage, title in (
        ("alignment", "Training of the trajectory encoder"),
        ("predictor", "Training of the predictors"),
        ("scorer", "Training of the scorers"),
        ("planners", "Training of planners of other papers"),
        ("probe", "Training of the attentive probe"),
    )
)
