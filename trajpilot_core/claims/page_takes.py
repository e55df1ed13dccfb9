"""Section of the claims page: what more training takes would change."""

from schemas.claims import DRAWN, ClaimsConfig, curve_worlds
from trajpilot_core.claims.markdown import CEILING, METRIC_NAMES, name, picture, rate, section, table
from trajpilot_core.claims.page_worlds import SHOWN_METRICS, reading
from trajpilot_core.claims.plots import MARKS, Panel, keys_of, sheet, whisker
from trajpilot_core.claims.statistics import Estimate
from trajpilot_core.claims.tables import Evidence
from trajpilot_core.report.charts import Axes, Series, line_chart

ROWS = ("no_traj", "endpoint_traj", "scorer", "knn_labels", "pool_mean", "scorer_plus", "oracle")
BOUNDS = (f"{CEILING}no_traj", f"{CEILING}endpoint_traj", f"{CEILING}oracle")
TEXT = """\
The knobs of `drawn` with fewer and with more training takes; one seed, plain mean over H in percent. Every size is a
draw with test takes of its own, so that its ceilings differ a little: they know the world and need no training takes.
"""


def takes_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return every row and its ceiling by the number of training takes."""
    sizes = sizes_of(cfg)
    blocks = [TEXT]
    for metric in SHOWN_METRICS:
        lines = [
            [name(row), *(rate(of_one_seed(evidence, world, row, metric, cfg)) for world in sizes)]
            for row in (*ROWS, *BOUNDS)
        ]
        header = ["row", *(f"{takes} takes" for takes in sizes.values())]
        blocks += [f"### {METRIC_NAMES[metric]}, %\n", table(header, lines)]
    return section("What more training takes would change", *blocks, picture("takes.svg", "Rows over training takes"))


def sizes_of(cfg: ClaimsConfig) -> dict[str, int]:
    """Return world -> its training takes, rising."""
    sizes = {DRAWN: cfg.door_train_takes, **curve_worlds(cfg)}
    return dict(sorted(sizes.items(), key=lambda item: item[1]))


def of_one_seed(evidence: Evidence, world: str, row: str, metric: str, cfg: ClaimsConfig) -> Estimate | None:
    """Return the plain mean over H of a row for the one seed of the learning curve; None where it was not run."""
    return reading(evidence, world, row, None, metric, cfg.replace(seeds=(cfg.sweep_seed,)))


def takes_picture(evidence: Evidence, cfg: ClaimsConfig) -> bytes:
    """Draw the rows over the number of training takes, ceilings dashed."""
    sizes = sizes_of(cfg)
    panels: list[Panel] = []
    series: list[Series] = []
    for metric in SHOWN_METRICS:
        series = []
        for row in (*ROWS, *BOUNDS):
            read = [(takes, of_one_seed(evidence, world, row, metric, cfg)) for world, takes in sizes.items()]
            points = tuple(whisker(float(takes), figure) for takes, figure in read if figure is not None)
            if points and row in BOUNDS:
                series.append(Series(name(row), f"{row.removeprefix(CEILING)} ceiling", points, "none", has_band=False))
            elif points:
                series.append(Series(name(row), row, points, MARKS.get(row, "circle")))
        label = METRIC_NAMES[metric]
        axes = Axes(label, "training takes", f"{label}, %", tuple(map(float, sizes.values())))
        panels.append(Panel(f"{label} (simulated world, one seed)", line_chart(axes, series)))
    return sheet(panels, keys_of(series))
