"""Training curves: loss and the score that selects the epoch, on dev and on training takes. Never a test figure."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from schemas.arrow import rows_of
from schemas.planners import PLANNERS
from schemas.results import CurvePoint
from trajpilot_core.methods import METHODS
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Chart, Key, Point, Series, legend_mark, line_chart
from trajpilot_core.report.drawing.row_styles import BETWEEN, LONGEST, SHORTEST, told_apart
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingAsked, NothingToDraw, sheet
from trajpilot_core.report.figures.base import Figure
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
LOSS, L1 = "loss", "-l1"
"""A distance in latents; every other score is a share."""
DEV_QUANTITIES = ("selection", "M@1", "R@5", "Mid mAcc", "Action", L1, "right", "action", "accuracy")
"""Scores that select the epoch: of those that were measured on dev, the first counts."""
WORDS = {"selection": "M@1 behind the gate"}
THIN = ", thin: on training takes"
MOST_POINTS = 160
"""Points of a line: a chart is 320 pixels wide, and a picture must fit into Prefect's database."""
OF_PLANNERS = " Planners: the selected learning rate; the shortest, the longest and one horizon between."


class DrawnModel(NamedTuple):
    """A model whose curves are drawn."""

    model: str
    name: str
    """As printed."""
    style: str
    quantity: str
    """The dev score that selects its epoch; empty where none was measured."""
    kept: int
    """The selected epoch; 0 without a dev score."""

    @property
    def key(self) -> Key:
        """Its entry in the legend."""
        epoch = f": epoch {self.kept}" if self.kept else ""
        return Key(f"{self.name}{epoch}", legend_mark(self.style, "circle" if self.kept else "none"))


def training_charts(curves: Sequence[tuple[str, Sequence[CurvePoint]]]) -> list[Chart]:
    """Draw, per (stage, its curve rows), the training loss and the score that selects the epoch: `final`, first seed.

    The score is that of dev; thin lines show the same score on a sample of the training takes. A dot marks the selected
    epoch. Every planner of another paper has its own charts, because their losses are not comparable.
    """
    charts = []
    for stage, rows in curves:
        shown = shown_rows(rows)
        for planner in dict.fromkeys(planner_of(model)[0] for model in models_of(shown)):
            of_planner = [row for row in shown if planner_of(row.model)[0] == planner]
            title, models = row_name(planner) if planner else stage, drawn_models(of_planner)
            charts.append(_chart(f"{title}: training loss", of_planner, models, LOSS, "train"))
            for quantity in DEV_QUANTITIES:  # models with the same score share a chart
                members = [model for model in models if model.quantity == quantity]
                name = f"{title}: dev {WORDS.get(quantity, quantity)}"
                charts += [_chart(name, of_planner, members, quantity, "dev")] if members else []
    return charts


def _chart(title: str, rows: Sequence[CurvePoint], models: Sequence[DrawnModel], quantity: str, split: str) -> Chart:
    """Draw one quantity over the epochs: a line per model with its selected epoch, thin lines for training takes."""
    lines = [line for model in models for line in _lines(rows, model, split, quantity)]
    thin = [line for model in models for line in _lines(rows, model, "train", quantity)[:1]] if split != "train" else []
    caption = title + (THIN if thin else "")
    last = max((int(point.x) for line in (*lines, *thin) for point in line.points), default=1)
    ticks = tuple(float(epoch) for epoch in range(0, last + 1, max(1, round(last / 5))))
    is_share = quantity not in (LOSS, L1)
    y_label = f"{quantity}, %" if is_share else quantity
    drawing = line_chart(caption, "epoch", y_label, lines, thin=thin, x_ticks=ticks, y_from_zero=is_share)
    return Chart(caption, drawing, [model.key for model in models])


def _lines(rows: Sequence[CurvePoint], model: DrawnModel, split: str, quantity: str) -> list[Series]:
    """Return a model's line, then the point of the selected epoch; empty where it was not measured."""
    points = [row for row in rows if (row.model, row.split, row.quantity) == (model.model, split, quantity)]
    if not points:
        return []
    factor = 1.0 if quantity in (LOSS, L1) else 100.0
    name = f"{model.name}, training takes" if split == "train" and quantity != LOSS else model.name
    mark = _points([row for row in points if row.epoch == model.kept], factor)
    line = Series(name, model.style, _points(points, factor), "none", has_band=False)
    return [line, *([Series(f"{name}, selected", model.style, mark, "circle", has_band=False)] if mark else [])]


def _points(rows: Sequence[CurvePoint], factor: float) -> tuple[Point, ...]:
    """Return the points of a line by epoch: about MOST_POINTS of them at most, the last one included."""
    ordered = sorted(rows, key=lambda row: row.epoch)
    kept = ordered[:: -max(1, round(len(ordered) / MOST_POINTS))]
    return tuple(Point(float(row.epoch), factor * row.value) for row in reversed(kept))


def shown_rows(rows: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the epochs that are drawn: chain `final`, first seed.

    A planner is drawn at its selected learning rate only, whose model is not named after the rate
    (`training.jobs.best_trial`), and at the shortest, the longest and one horizon between.
    """
    final = [row for row in rows if row.model.startswith("final/") and "," not in row.model and row.epoch > 0]
    styles = horizon_styles(models_of(final))
    kept = [row for row in final if planner_of(row.model)[1] in (0, *styles)]
    first = min((row.seed for row in kept), default=0)
    return [row for row in kept if row.seed == first]


def models_of(rows: Sequence[CurvePoint]) -> list[str]:
    """Return the models of some rows, sorted; planners as in the tables, each by horizon."""
    order = ("", *PLANNERS)
    places = {row.model: (order.index(planner_of(row.model)[0]), planner_of(row.model)[1]) for row in rows}
    return sorted(places, key=lambda model: (places[model], model))


def drawn_models(rows: Sequence[CurvePoint]) -> list[DrawnModel]:
    """Return the models of some rows with their styles, the dev score that selects the epoch, and that epoch.

    A model has the colour of the row of its name, else of the first row that uses only it; a planner also the dashes of
    its horizon. No two models of a chart share a colour, except the horizons of a planner.
    """
    on_dev = {(row.model, row.quantity) for row in rows if row.split == "dev"}
    names = models_of(rows)
    dashes, planners = horizon_styles(names), {model: planner_of(model) for model in names}
    colours = {method.models[0]: method.id for method in reversed(METHODS) if len(method.models) == 1}
    colours |= {method.id: method.id for method in METHODS}
    plain = [model for model in names if not planners[model][0]]
    styles = dict(zip(plain, told_apart(colours.get(short(model), "") for model in plain), strict=True))
    styles |= {model: f"{row} {dashes[horizon]}" for model, (row, horizon) in planners.items() if row}
    models = []
    for model, style in styles.items():
        quantity = next((q for q in DEV_QUANTITIES if (model, q) in on_dev), "")
        models.append(DrawnModel(model, _name(model), style, quantity, chosen_epoch(rows, model, quantity)))
    return models


def chosen_epoch(rows: Sequence[CurvePoint], model: str, quantity: str) -> int:
    """Return the selected epoch: the first with the highest dev score (training.loop.note_epoch); 0 without a score."""
    scores = {row.epoch: row.value for row in rows if (row.model, row.split, row.quantity) == (model, "dev", quantity)}
    return min(scores, key=lambda epoch: (-scores[epoch], epoch), default=0)


def planner_of(model: str) -> tuple[str, int]:
    """Return row and horizon of a planner's model; an empty text and 0 for any other model."""
    row, _, horizon = short(model).rpartition("_h")
    return (row, int(horizon)) if row in PLANNERS and horizon.isdigit() else ("", 0)


def horizon_styles(models: Iterable[str]) -> dict[int, str]:
    """Return the horizons of planners that are drawn -> style of their lines: shortest, longest, one between."""
    horizons = sorted({planner_of(model)[1] for model in models} - {0})
    if not horizons:
        return {}
    return {horizons[0]: SHORTEST, horizons[len(horizons) // 2]: BETWEEN, horizons[-1]: LONGEST}


def short(model: str) -> str:
    """Return the name of a model within its chain."""
    return model.split("/", 1)[1]


def _name(model: str) -> str:
    planner, horizon = planner_of(model)
    name = short(model)
    return f"{row_name(planner)}, H={horizon}" if planner else NAMES.get(name, row_name(name))


def draw(committed: Committed, stage: str) -> Drawn:
    """Draw the charts of one stage's trainings in one picture."""
    every = rows_of(CurvePoint, committed.table(stage, f"{stage}_curves"))
    if not every:
        raise NothingAsked("nothing was trained")
    rows = shown_rows(every)
    if not rows:
        raise NothingToDraw("nothing was trained in the chain `final`")
    charts = training_charts([(stage, every)])
    keys = {key.name: key for chart in charts for key in chart.legend}
    content = sheet(charts, [*keys.values()], committed.warning())
    caption = (
        "Loss on the training takes, and the score on dev takes that selects the epoch. Dot and legend show the "
        f"selected epoch. Chain `final`, seed {rows[0].seed}. No loss is computed on dev takes; no test take is used."
    )
    return Drawn(content, caption + (OF_PLANNERS if any(planner_of(row.model)[0] for row in rows) else ""))


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
