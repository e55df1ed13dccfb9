"""Training curves: loss and the score that chooses the epoch, the chosen epoch marked. Never a test figure."""

from collections.abc import Sequence

from schemas.arrow import rows_of
from schemas.results import CurvePoint
from trajpilot_core.pictures.look import Look
from trajpilot_core.pictures.picture import Drawn, NothingToDraw
from trajpilot_core.pictures.style import COLUMNS, style
from trajpilot_core.report.charts import Axes, Point, Series, line_chart
from trajpilot_core.report.figures import CURVE_STYLES
from trajpilot_core.report.names import row_name
from trajpilot_core.report.sheet import Key, Panel, sheet

STYLES = {**CURVE_STYLES, "e_tau": "scorer", "scorer_plus": "scorer_plus"}
NAMES = {"e_tau": "trajectory encoder", "traj": "with trajectories"}
CHOSEN_BY = {"alignment": "R@5", "predictor": "M@1", "scorer": "selection", "scorer_plus": "log likelihood"}
"""What chooses the epoch that is kept, on dev: the `selected` of the trainings."""
PERCENT = ("R@5", "M@1", "selection")
WORDS = {"selection": "M@1 behind the gate"}


def alignment_curves(look: Look) -> Drawn:
    """Draw the training of E_tau."""
    return _drawn(look, "alignment", _rows(look, "alignment"))


def predictor_curves(look: Look) -> Drawn:
    """Draw the trainings of the predictors."""
    return _drawn(look, "predictor", _rows(look, "predictor"))


def scorer_curves(look: Look) -> Drawn:
    """Draw the trainings of the scorers; Scorer+ has a loss and a score of its own."""
    return _drawn(look, "scorer", _rows(look, "scorer"))


def _rows(look: Look, stage: str) -> list[CurvePoint]:
    """Epochs of the chain `final`, first seed."""
    rows = rows_of(CurvePoint, look.table(stage, f"{stage}_curves"))
    trained = [row for row in rows if row.model.startswith("final/") and row.epoch > 0]
    if not trained:
        raise NothingToDraw("nothing was trained")
    first = min(row.seed for row in trained)
    return [row for row in trained if row.seed == first]


def _drawn(look: Look, stage: str, rows: Sequence[CurvePoint]) -> Drawn:
    """Draw loss and score for every group of models that share them."""
    models = sorted({row.model for row in rows})
    groups: dict[str, list[str]] = {}
    for model in models:
        groups.setdefault(CHOSEN_BY.get(short(model), CHOSEN_BY[stage]), []).append(model)
    panels, keys = [], []
    for quantity, members in groups.items():
        kept = {model: chosen_epoch(rows, model, quantity) for model in members}
        panels += [_loss(rows, kept), _score(rows, kept, quantity)]
        keys += [Key(f"{_name(model)}: epoch {kept[model]}", _style(model), "circle") for model in members]
    content = sheet(panels, keys, style(), COLUMNS, look.warning())
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


def _name(model: str) -> str:
    name = short(model)
    return NAMES.get(name, row_name(name))


def _style(model: str) -> str:
    return STYLES.get(short(model), short(model))


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
    title = f"{WORDS.get(quantity, quantity)}, {unit}, on dev takes" + (", thin: on training takes" if train else "")
    axes = _axes(title, lines, from_zero=quantity in PERCENT)
    return Panel(title, line_chart(axes, lines, train))


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
