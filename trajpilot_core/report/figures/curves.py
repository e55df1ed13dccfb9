"""Training curves: loss and the score that chooses the epoch, on dev and on training takes. Never a test figure."""

from collections.abc import Callable, Sequence

from schemas.arrow import rows_of
from schemas.results import CurvePoint
from trajpilot_core.methods import METHODS, examined
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Axes, Point, Series, legend_mark, line_chart
from trajpilot_core.report.drawing.legend import DEV_QUANTITIES, Chart, Key, keys_of
from trajpilot_core.report.drawing.picture import Drawn, NothingToDraw
from trajpilot_core.report.drawing.style import COLUMNS, style
from trajpilot_core.report.drawing.svg_grid import Panel, sheet
from trajpilot_core.report.figures.base import Figure, Material
from trajpilot_core.report.tables.names import row_name

NAMES = {
    "e_tau": "trajectory encoder",
    "traj": "with trajectories",
    "traj_goal_dropout": "with trajectories, goal dropout",
}
CHOSEN_BY = {
    "alignment": "R@5",
    "predictor": "M@1",
    "scorer": "selection",
    "scorer_plus": "log likelihood",
    "attention": "M@1",
    "planners": "Mid mAcc",
}
"""Stage or model, not row -> what chooses the epoch that is kept, on dev: the `selected` of the trainings."""
PERCENT = ("R@5", "M@1", "Mid mAcc", "selection")
WORDS = {"selection": "M@1 behind the gate"}
THIN = ", thin: on training takes"


def charts(material: Material) -> list[Chart]:
    """Draw, per stage, the training loss and the score that selects the epoch, chain `final`, first seed.

    The score is that of dev; the thin lines are the same score of a sample of what was learned from.
    """
    drawn = []
    for stage, rows in material.curves:
        kept = [row for row in rows if row.model.startswith("final/") and row.seed == min(r.seed for r in rows)]
        trained = [row for row in kept if row.epoch > 0]
        if not trained:
            continue
        losses = [row for row in trained if row.quantity == "loss" and row.split == "train"]
        drawn.append(_curves(f"{stage}: training loss", "loss", losses, (), 1.0))
        chosen = next((q for q in DEV_QUANTITIES if any(r.quantity == q and r.split == "dev" for r in trained)), None)
        scores = [row for row in trained if row.quantity == chosen]
        if chosen:
            of_dev, fitted = ([row for row in scores if row.split == split] for split in ("dev", "train"))
            title = f"{stage}: dev {chosen}" + (THIN if fitted else "")
            drawn.append(_curves(title, f"{chosen}, %", of_dev, fitted, 100.0))
    return drawn


def _curves(title: str, y_label: str, rows: Sequence[CurvePoint], fitted: Sequence[CurvePoint], factor: float) -> Chart:
    """Draw one quantity over the epochs, a line per model, and thin ones for what was fitted."""
    series, thin = _by_model(rows, factor), _by_model(fitted, factor, ", training takes")
    last = max((row.epoch for row in (*rows, *fitted)), default=1)
    step = max(1, round(last / 5))
    axes = Axes(title, "epoch", y_label, tuple(float(e) for e in range(0, last + 1, step)))
    return Chart(title, line_chart(axes, series, thin=thin), keys_of(series))


def _by_model(rows: Sequence[CurvePoint], factor: float, of: str = "") -> list[Series]:
    """Return a line per model; `of` is added to its name, not to its colour."""
    series = []
    for model in sorted({row.model for row in rows}):
        name = model.removeprefix("final/")
        points = tuple(
            Point(float(r.epoch), *[factor * r.value] * 3)
            for r in sorted((r for r in rows if r.model == model), key=lambda r: r.epoch)
        )
        series.append(Series(f"{name}{of}", colour_of(name), points, "none"))
    return series


def _rows(committed: Committed, stage: str) -> list[CurvePoint]:
    """Epochs of the chain `final`, first seed."""
    rows = rows_of(CurvePoint, committed.table(stage, f"{stage}_curves"))
    trained = [row for row in rows if row.model.startswith("final/") and row.epoch > 0]
    if not trained:
        raise NothingToDraw("nothing was trained")
    first = min(row.seed for row in trained)
    return [row for row in trained if row.seed == first]


def _drawn(committed: Committed, stage: str, rows: Sequence[CurvePoint]) -> Drawn:
    """Draw loss and score for every group of models that share them."""
    models = sorted({row.model for row in rows})
    groups: dict[str, list[str]] = {}
    for model in models:
        groups.setdefault(CHOSEN_BY.get(short(model), CHOSEN_BY[stage]), []).append(model)
    panels, keys = [], []
    for quantity, members in groups.items():
        kept = {model: chosen_epoch(rows, model, quantity) for model in members}
        panels += [_loss(rows, kept), _score(rows, kept, quantity)]
        keys += [Key(f"{_name(model)}: epoch {kept[model]}", legend_mark(_style(model), "circle")) for model in members]
    content = sheet(panels, keys, style(), COLUMNS, committed.warning())
    seed = rows[0].seed
    return Drawn(
        content,
        f"Loss on the training takes, and the score on dev takes that chooses the epoch. The dot and the legend give "
        f"the epoch that was kept. Chain `final`, seed {seed}. A loss on dev is not computed; no test take is used.",
    )


def chosen_epoch(rows: Sequence[CurvePoint], model: str, quantity: str) -> int:
    """Return the epoch that was kept: the first with the highest dev score (training.loop.note_epoch)."""
    scores = {row.epoch: row.value for row in rows if _is(row, model, "dev", quantity)}
    if not scores:
        raise NothingToDraw(f"{model} has no dev {quantity}")
    return min(scores, key=lambda epoch: (-scores[epoch], epoch))


def short(model: str) -> str:
    """Return the name of a model within its chain."""
    return model.split("/", 1)[1]


def colour_of(name: str) -> str:
    """Return the row whose colour the curve of a model has: of its name, else the first that rests on it alone."""
    own = [one.id for one in METHODS if one.id == name]
    return next(iter((*own, *(one.id for one in METHODS if one.models == (name,)), examined().id)))


def _name(model: str) -> str:
    name = short(model)
    return NAMES.get(name, row_name(name))


def _style(model: str) -> str:
    return colour_of(short(model))


def _is(row: CurvePoint, model: str, split: str, quantity: str) -> bool:
    return (row.model, row.split, row.quantity) == (model, split, quantity)


def _loss(rows: Sequence[CurvePoint], kept: dict[str, int]) -> Panel:
    """Draw the training loss."""
    lines = [line for model in kept for line in _lines(rows, model, "train", "loss", kept[model], 1.0)]
    return Panel("Training loss", line_chart(_axes("Training loss", lines), lines))


def _score(rows: Sequence[CurvePoint], kept: dict[str, int], quantity: str) -> Panel:
    """Draw the score that chooses the epoch, on dev, and on train where it is measured there (thin)."""
    factor = 100.0 if quantity in PERCENT else 1.0
    unit = "%" if quantity in PERCENT else "nats"
    lines = [line for model in kept for line in _lines(rows, model, "dev", quantity, kept[model], factor)]
    train = [line for model in kept for line in _lines(rows, model, "train", quantity, None, factor)]
    title = f"{WORDS.get(quantity, quantity)}, {unit}, on dev takes" + (THIN if train else "")
    axes = _axes(title, lines, from_zero=quantity in PERCENT)
    return Panel(title, line_chart(axes, lines, thin=train))


def _lines(
    rows: Sequence[CurvePoint], model: str, split: str, quantity: str, kept: int | None, factor: float
) -> list[Series]:
    """Return a model's line and the point of the epoch that was kept; nothing where it was not measured."""
    found = sorted((row for row in rows if _is(row, model, split, quantity)), key=lambda row: row.epoch)
    points = tuple(Point(float(row.epoch), *[factor * row.value] * 3) for row in found)
    if not points:
        return []
    name = f"{_name(model)}, {split}"
    line = Series(name, _style(model), points, "none", has_band=False)
    mark = tuple(point for point in points if point.x == kept)
    return [line, Series(f"{name}, kept", _style(model), mark, "circle", has_band=False)] if mark else [line]


def _axes(title: str, lines: Sequence[Series], *, from_zero: bool = False) -> Axes:
    """Epochs below; the title of the panel names what goes up, so that wide numbers have room."""
    last = max((int(point.x) for line in lines for point in line.points), default=1)
    step = max(1, round(last / 6))
    return Axes(title, "epoch", "", tuple(float(e) for e in range(step, last + 1, step)), y_from_zero=from_zero)


def _pictures(stage: str) -> Callable[[Committed], Drawn]:
    """Return what draws the trainings of a stage for the UI."""
    return lambda committed: _drawn(committed, stage, _rows(committed, stage))


FIGURES = (
    Figure("curves", "Trainings", "training", charts),
    *(
        Figure("curves", title, stages=(stage,), draw=_pictures(stage))
        for stage, title in (
            ("alignment", "Training of the trajectory encoder"),
            ("predictor", "Training of the predictors"),
            ("scorer", "Training of the scorers"),
            ("attention", "Training of retrieval attention"),
            ("planners", "Training of planners of other papers"),
        )
    ),
)
"""In the report all trainings together; in the UI those of each stage."""
