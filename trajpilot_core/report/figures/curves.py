"""Training curves: loss and the score that chooses the epoch, on dev and on training takes. Never a test figure."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from schemas.arrow import rows_of
from schemas.planners import PLANNERS
from schemas.results import CurvePoint
from trajpilot_core.methods import METHODS
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import (
    DEV_QUANTITIES,
    Axes,
    Chart,
    Key,
    Point,
    Series,
    keys_of,
    legend_mark,
    line_chart,
)
from trajpilot_core.report.drawing.picture import Drawn, NothingAsked, NothingToDraw
from trajpilot_core.report.drawing.row_styles import BETWEEN, LONGEST, SHORTEST, told_apart
from trajpilot_core.report.drawing.svg_grid import Panel, sheet
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.tables.names import row_name

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
CHOSEN_BY = {"alignment": "R@5", "predictor": "M@1", "scorer": "selection", "planners": "Mid mAcc", "probe": "Action"}
"""Stage or model (not row) -> the dev score that selects the epoch: the `selected` of the trainings."""
PERCENT = ("R@5", "M@1", "Mid mAcc", "selection", "Action")
WORDS = {"selection": "M@1 behind the gate"}
L1 = "-l1"
"""A distance in latents; every other score is a share."""
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
    kept: int
    """The selected epoch."""


def training_charts(curves: Sequence[tuple[str, Sequence[CurvePoint]]]) -> list[Chart]:
    """Draw, per (stage, its curve rows), the training loss and the score that selects the epoch: `final`, first seed.

    The score is that of dev; thin lines show the same score on a sample of the training takes. Every planner of another
    paper has its own charts, because their losses are not comparable.
    """
    drawn = []
    for stage, rows in curves:
        shown = shown_rows(rows)
        for planner in dict.fromkeys(planner_of(model)[0] for model in models_of(shown)):
            own = [row for row in shown if planner_of(row.model)[0] == planner]
            drawn += _charts(row_name(planner) if planner else stage, own)
    return drawn


def _charts(title: str, trained: Sequence[CurvePoint]) -> list[Chart]:
    """Draw the loss, and each score that was measured on dev; models with the same score share a chart."""
    losses = [row for row in trained if row.quantity == "loss" and row.split == "train"]
    styles = _styles(models_of(trained))
    drawn = [_curves(f"{title}: training loss", "loss", _by_model(losses, styles, 1.0), ())]
    on_dev = {(row.model, row.quantity) for row in trained if row.split == "dev"}
    chosen = {model: next((q for q in DEV_QUANTITIES if (model, q) in on_dev), "") for model in models_of(trained)}
    for quantity in (quantity for quantity in DEV_QUANTITIES if quantity in chosen.values()):
        scores = [row for row in trained if row.quantity == quantity == chosen[row.model]]
        of_dev, fitted = ([row for row in scores if row.split == split] for split in ("dev", "train"))
        caption = f"{title}: dev {quantity}" + (THIN if fitted else "")
        factor, unit = (1.0, "") if quantity == L1 else (100.0, ", %")
        thin = _by_model(fitted, styles, factor, ", training takes")
        drawn.append(_curves(caption, f"{quantity}{unit}", _by_model(of_dev, styles, factor), thin))
    return drawn


def _curves(title: str, y_label: str, series: Sequence[Series], thin: Sequence[Series]) -> Chart:
    """Draw one quantity over the epochs, a line per model, and thin lines for training takes."""
    last = max((int(point.x) for line in (*series, *thin) for point in line.points), default=1)
    step = max(1, round(last / 5))
    axes = Axes(title, "epoch", y_label, tuple(float(e) for e in range(0, last + 1, step)))
    return Chart(title, line_chart(axes, series, thin=thin), keys_of(series))


def _by_model(rows: Sequence[CurvePoint], styles: Mapping[str, str], factor: float, of: str = "") -> list[Series]:
    """Return a line per model; `of` is added to its name, not to its colour."""
    return [
        Series(
            f"{_name(model)}{of}", styles[model], _points([row for row in rows if row.model == model], factor), "none"
        )
        for model in models_of(rows)
    ]


def _points(rows: Sequence[CurvePoint], factor: float) -> tuple[Point, ...]:
    """Return the points of a line by epoch: about MOST_POINTS of them at most, the last one included."""
    ordered = sorted(rows, key=lambda row: row.epoch)
    kept = ordered[:: -max(1, round(len(ordered) / MOST_POINTS))]
    return tuple(Point(float(row.epoch), *[factor * row.value] * 3) for row in reversed(kept))


def shown_rows(rows: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the epochs that are drawn: chain `final`, first seed.

    A planner is drawn at its selected learning rate only, whose model is not named after the rate
    (`training.jobs.best_trial`), and at the shortest, the longest and one horizon between.
    """
    final = [row for row in rows if row.model.startswith("final/") and "," not in row.model and row.epoch > 0]
    drawn = horizon_styles(models_of(final))
    kept = [row for row in final if planner_of(row.model)[1] in (0, *drawn)]
    first = min((row.seed for row in kept), default=0)
    return [row for row in kept if row.seed == first]


def models_of(rows: Sequence[CurvePoint]) -> list[str]:
    """Return the models of some rows, sorted; planners as in the tables, each by horizon."""
    order = ("", *PLANNERS)
    places = {row.model: (order.index(planner_of(row.model)[0]), planner_of(row.model)[1]) for row in rows}
    return sorted(places, key=lambda model: (places[model], model))


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


def _drawn(committed: Committed, stage: str) -> Drawn:
    """Draw loss and score of a stage's trainings for every group of models that share them."""
    every = rows_of(CurvePoint, committed.table(stage, f"{stage}_curves"))
    if not every:
        raise NothingAsked("nothing was trained")
    rows = shown_rows(every)
    if not rows:
        raise NothingToDraw("nothing was trained in the chain `final`")
    groups: dict[tuple[str, str], list[DrawnModel]] = {}
    for model, line in _styles(models_of(rows)).items():
        planner, quantity = planner_of(model)[0], CHOSEN_BY.get(short(model), CHOSEN_BY[stage])
        one = DrawnModel(model, _name(model), line, chosen_epoch(rows, model, quantity))
        groups.setdefault((planner, quantity), []).append(one)
    panels, keys = [], []
    for (planner, quantity), members in groups.items():
        whose = f"{row_name(planner)}: " if planner else ""
        lines = [line for one in members for line in _lines(rows, one, "train", "loss", 1.0)]
        loss = line_chart(_axes(f"{whose}Training loss", lines), lines)
        panels += [Panel(f"{whose}Training loss", loss), _score(rows, members, quantity, whose)]
        keys += [Key(f"{one.name}: epoch {one.kept}", legend_mark(one.style, "circle")) for one in members]
    content = sheet(panels, keys, committed.warning())
    seed = rows[0].seed
    return Drawn(
        content,
        f"Loss on the training takes, and the score on dev takes that selects the epoch. Dot and legend show the "
        f"selected epoch. Chain `final`, seed {seed}. No loss is computed on dev takes; no test take is used."
        + (OF_PLANNERS if any(planner for planner, _ in groups) else ""),
    )


def chosen_epoch(rows: Sequence[CurvePoint], model: str, quantity: str) -> int:
    """Return the selected epoch: the first with the highest dev score (training.loop.note_epoch)."""
    scores = {row.epoch: row.value for row in rows if _is(row, model, "dev", quantity)}
    if not scores:
        raise NothingToDraw(f"{model} has no dev {quantity}")
    return min(scores, key=lambda epoch: (-scores[epoch], epoch))


def short(model: str) -> str:
    """Return the name of a model within its chain."""
    return model.split("/", 1)[1]


def colour_of(name: str) -> str:
    """Return the row whose colour the curve of a model has: the one of its name, else the first that uses only it.

    Empty without one.
    """
    own = [one.id for one in METHODS if one.id == name]
    return next(iter((*own, *(one.id for one in METHODS if one.models == (name,)))), "")


def _name(model: str) -> str:
    planner, horizon = planner_of(model)
    name = short(model)
    return f"{row_name(planner)}, H={horizon}" if planner else NAMES.get(name, row_name(name))


def _styles(models: Sequence[str]) -> dict[str, str]:
    """Return model -> style of its line: the colour of its row, and the dashes of a planner's horizon.

    No two models of a chart share a colour, except the horizons of a planner.
    """
    dashes = horizon_styles(models)
    planners = {model: planner_of(model) for model in models}
    plain = [model for model in models if not planners[model][0]]
    own = dict(zip(plain, told_apart(colour_of(short(model)) for model in plain), strict=True))
    return own | {model: f"{row} {dashes[horizon]}" for model, (row, horizon) in planners.items() if row}


def _is(row: CurvePoint, model: str, split: str, quantity: str) -> bool:
    return (row.model, row.split, row.quantity) == (model, split, quantity)


def _score(rows: Sequence[CurvePoint], shown: Sequence[DrawnModel], quantity: str, whose: str) -> Panel:
    """Draw the score that selects the epoch, on dev, and as thin lines on training takes where it was measured."""
    factor = 100.0 if quantity in PERCENT else 1.0
    unit = "%" if quantity in PERCENT else "nats"
    lines = [line for one in shown for line in _lines(rows, one, "dev", quantity, factor)]
    train = [line for one in shown for line in _lines(rows, one, "train", quantity, factor)[:1]]
    title = f"{whose}{WORDS.get(quantity, quantity)}, {unit}, dev" + (" (thin: training)" if train else "")
    axes = _axes(title, lines, from_zero=quantity in PERCENT)
    return Panel(title, line_chart(axes, lines, thin=train))


def _lines(rows: Sequence[CurvePoint], one: DrawnModel, split: str, quantity: str, factor: float) -> list[Series]:
    """Return a model's line, then the point of the selected epoch; empty where it was not measured."""
    found = [row for row in rows if _is(row, one.model, split, quantity)]
    if not found:
        return []
    name = f"{one.name}, {split}"
    line = Series(name, one.style, _points(found, factor), "none", has_band=False)
    mark = _points([row for row in found if row.epoch == one.kept], factor)
    return [line, Series(f"{name}, kept", one.style, mark, "circle", has_band=False)] if mark else [line]


def _axes(title: str, lines: Sequence[Series], *, from_zero: bool = False) -> Axes:
    """Return axes without a y label: the panel's title names the quantity, which leaves room for wide numbers."""
    last = max((int(point.x) for line in lines for point in line.points), default=1)
    step = max(1, round(last / 6))
    return Axes(title, "epoch", "", tuple(float(e) for e in range(step, last + 1, step)), y_from_zero=from_zero)


FIGURES = (
    Figure("curves", "Trainings", "training", lambda material: training_charts(material.curves)),
    *(
        Figure("curves", title, stages=(stage,), draw=partial(_drawn, stage=stage))
        for stage, title in (
            ("alignment", "Training of the trajectory encoder"),
            ("predictor", "Training of the predictors"),
            ("scorer", "Training of the scorers"),
            ("planners", "Training of planners of other papers"),
            ("probe", "Training of the attentive probe"),
        )
    ),
)
"""In the report all trainings together; in the UI those of each stage."""
