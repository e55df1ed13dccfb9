"""Sections of the claims page: every row in the rendered world, the control worlds, the sweep, and the two doors."""

from collections.abc import Sequence

from schemas.claims import BASE, DRAWN, NO_INFORMATION, NO_STYLE, SWEEP_ROWS, ClaimsConfig, sweep_worlds
from trajpilot_core.claims import statistics
from trajpilot_core.claims.contrasts import contrast
from trajpilot_core.claims.doors import Doors
from trajpilot_core.claims.markdown import (
    CEILING,
    METRIC_NAMES,
    change,
    horizons,
    name,
    number,
    picture,
    rate,
    section,
    seeds,
    table,
    verdict,
)
from trajpilot_core.claims.plots import MARKS, Key, Panel, keys_of, sheet, whisker
from trajpilot_core.claims.statistics import Estimate, estimate
from trajpilot_core.claims.tables import Evidence
from trajpilot_core.report.charts import Axes, Point, Series, line_chart
from trajpilot_core.report.names import in_order

SHOWN_METRICS = ("m1", "mseq")
DRAWN_ROWS = ("no_traj", "endpoint_traj", "scorer", "scorer_plus", "pool_mean", "oracle", "top1", "shuffled")
"""Rows in the picture of the rendered world."""
CONTROL_WORLDS = (BASE, DRAWN, NO_STYLE, NO_INFORMATION)
ROWS_TEXT = """\
Percent, averaged over the seeds, with 95 % intervals over takes; the mean over H is the plain one. The last column
is the exact ceiling of what the row may see, or more, averaged over the same windows (see *Ceilings*): no row can
lie above it except by chance.
"""
CONTROLS_TEXT = """\
The plain mean over H in the rendered world, in a world of the same knobs through the other door, and where the head's
motion tells no intent, or nothing at all. Each world has its own takes. `base` differs from the others in more than
the door: it has more takes for training, and its scorers learn on cross-fitted candidates, theirs on takes that are
held out (*What was run*). Controls are therefore compared with `drawn`, which has their recipe.
"""
SWEEP_TEXT = """\
All pairs of kappa (label information in motion) and style (intent information in motion), one seed, through the
door of features; the worlds of the claims have kappa 1.5 and style 2. Plain mean over H in percent. Ceilings are
exact.
"""
DOORS_TEXT = """\
The same knobs through both doors: video files that are decoded and encoded, and tables whose frames show a still
head. Two other things differ: the number of takes, and how the scorers' training takes are set aside (*What was
run*); an order that differs may come from any of the three. Rule: it fails where two rows stand in opposite order and
both intervals exclude zero, is undecided where chance explains every such pair, and holds where there is none. `tau`
is Kendall's rank correlation of the two orders.
"""
NEARER_TEXT = """\
Added after the first tables had been seen, because the final models of `{drawn}` are fitted on little more than half
as many takes as those of `{base}`: the largest world of the learning curve, of one seed, whose models are fitted on
somewhat more.
"""


def reading(
    evidence: Evidence, world: str, row: str, reference: str | None, metric: str, cfg: ClaimsConfig
) -> Estimate | None:
    """Return the plain mean over H of a row or a difference; None where it was not run."""
    profile = contrast(evidence, world, row, reference, metric, cfg).profile
    return None if profile is None else estimate(profile, statistics.plain_mean(len(cfg.horizons)), cfg.confidence)


def per_horizon(evidence: Evidence, world: str, row: str, metric: str, cfg: ClaimsConfig) -> list[Estimate]:
    """Return a row at each H; nothing where it was not run."""
    profile = contrast(evidence, world, row, None, metric, cfg).profile
    if profile is None:
        return []
    n = len(cfg.horizons)
    return [estimate(profile, statistics.only(n, place), cfg.confidence) for place in range(n)]


def rows_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return M@1 and MSeq of every row in the rendered world, per H, with ceilings beside."""
    blocks = [ROWS_TEXT]
    for metric in SHOWN_METRICS:
        header = ["row", *horizons(cfg), "mean over H", "each seed", "takes", "ceiling"]
        blocks += [f"### {METRIC_NAMES[metric]}, %\n", table(header, _row_lines(evidence, metric, cfg))]
    return section(f"Every row in the rendered world (`{BASE}`)", *blocks, picture("rows.svg", "Rows over the horizon"))


def _row_lines(evidence: Evidence, metric: str, cfg: ClaimsConfig) -> list[list[str]]:
    """Return a line per row, methods first, then ceilings."""
    lines = []
    for row in _rows_in_order(evidence, BASE):
        figures, mean = per_horizon(evidence, BASE, row, metric, cfg), reading(evidence, BASE, row, None, metric, cfg)
        assert mean is not None
        top = "" if row.startswith(CEILING) else number(_ceiling(evidence, BASE, row, metric))
        lines.append([name(row), *map(rate, figures), rate(mean), seeds(mean, signed=False), str(mean.n_takes), top])
    return lines


def _rows_in_order(evidence: Evidence, world: str) -> list[str]:
    """Return the rows that some seed of a world has, in the order of the report's tables, ceilings last."""
    held = {row for scores in evidence.scores.get(world, {}).values() for row in scores.rows}
    bounds = in_order({row.removeprefix(CEILING) for row in held if row.startswith(CEILING)})
    return [*in_order({row for row in held if not row.startswith(CEILING)}), *(CEILING + row for row in bounds)]


def _ceiling(evidence: Evidence, world: str, row: str, metric: str) -> float:
    """Return the ceiling of a row over all H, averaged over the seeds; not a number where there is none."""
    found = [
        ceiling.ceiling
        for place, ceiling in evidence.ceilings
        if (place.world, ceiling.variant, ceiling.metric, ceiling.horizon) == (world, row, METRIC_NAMES[metric], None)
    ]
    return sum(found) / len(found) if found else float("nan")


def controls_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return every row in the control worlds, and the leads over No-Traj there."""
    rows = in_order({row for world in CONTROL_WORLDS for row in _rows_in_order(evidence, world) if CEILING not in row})
    blocks = [CONTROLS_TEXT]
    for metric in SHOWN_METRICS:
        levels = [
            [name(row), *(rate(reading(evidence, w, row, None, metric, cfg)) for w in CONTROL_WORLDS)] for row in rows
        ]
        leads = [
            [name(row), *(change(reading(evidence, w, row, "no_traj", metric, cfg)) for w in CONTROL_WORLDS)]
            for row in rows
            if row != "no_traj"
        ]
        blocks += [f"### {METRIC_NAMES[metric]}, %\n", table(["row", *CONTROL_WORLDS], levels)]
        blocks += [f"### {METRIC_NAMES[metric]} minus No-Traj's, points\n", table(["row", *CONTROL_WORLDS], leads)]
    takes = ", ".join(f"`{world}` {_takes(evidence, world)}" for world in CONTROL_WORLDS)
    return section("Control worlds", *blocks, f"Test takes over all seeds: {takes}.")


def _takes(evidence: Evidence, world: str) -> int:
    """Return the number of test takes of a world over its seeds."""
    return sum(len(scores.takes) for scores in evidence.scores.get(world, {}).values())


def sweep_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return the whole sweep."""
    blocks = [SWEEP_TEXT]
    for metric in SHOWN_METRICS:
        header = ["style", "kappa", *(part for row in SWEEP_ROWS for part in (name(row), f"{name(row)}: ceiling"))]
        header += ["Endpoint-Traj − No-Traj", "Oracle − No-Traj", "takes"]
        lines = [
            _sweep_line(evidence, world, kappa, style, metric, cfg)
            for world, (kappa, style) in sweep_worlds(cfg).items()
        ]
        blocks += [f"### {METRIC_NAMES[metric]}\n", table(header, lines)]
    return section("The sweep over kappa and style", *blocks, picture("sweep.svg", "M@1 over kappa for each style"))


def _sweep_line(
    evidence: Evidence, world: str, kappa: float, style: float, metric: str, cfg: ClaimsConfig
) -> list[str]:
    """Return one world of the sweep."""
    levels = [
        rate(reading(evidence, world, prefix + row, None, metric, cfg))
        for row in SWEEP_ROWS
        for prefix in ("", CEILING)
    ]
    leads = [change(reading(evidence, world, row, "no_traj", metric, cfg)) for row in ("endpoint_traj", "oracle")]
    return [f"{style:g}", f"{kappa:g}", *levels, *leads, str(_takes(evidence, world) or "")]


def seeds_text(seeds: Sequence[int]) -> str:
    """Name seeds."""
    return f"seed{'s' if len(seeds) != 1 else ''} {', '.join(map(str, seeds))}"


def doors_section(compared: Sequence[Doors]) -> str:
    """Return the order of the rows through both doors."""
    blocks = [DOORS_TEXT]
    for doors in compared:
        base, by_door = doors.worlds
        if by_door != DRAWN and NEARER_TEXT.format(base=base, drawn=DRAWN) not in blocks:
            blocks.append(NEARER_TEXT.format(base=base, drawn=DRAWN))
        by_features = sorted(doors.figures, key=lambda item: (-item[2].value, item[0]))
        rank = {row: place + 1 for place, (row, _, _) in enumerate(by_features)}
        lines = [
            [
                str(place + 1),
                name(row),
                rate(files),
                str(rank[row]),
                rate(features),
                f"{files.n_takes}, {features.n_takes}",
            ]
            for place, (row, files, features) in enumerate(doors.figures)
        ]
        swaps = [
            [f"{name(s.row)} − {name(s.reference)}", change(s.by_files), change(s.by_features),
             "beyond chance" if s.is_shown() else "within chance"]
            for s in doors.swaps
        ]  # fmt: skip
        tau = "–" if doors.tau is None else number(doors.tau, 2)
        blocks += [
            f"### {METRIC_NAMES[doors.metric]}: `{base}` and `{by_door}`, {seeds_text(doors.seeds)}\n",
            f"Same order: {verdict(doors.verdict)}; tau {tau}; {len(doors.swaps)} pairs differ. {doors.gap}".strip(),
            table(["place", "row", f"`{base}`, %", "place", f"`{by_door}`, %", "takes"], lines),
        ]
        if swaps:
            blocks.append(table(["pair in opposite order", f"`{base}`, points", f"`{by_door}`, points", ""], swaps))
    return section("Do both doors give the same order?", *blocks)


def rows_picture(evidence: Evidence, cfg: ClaimsConfig) -> bytes:
    """Draw the rows of the rendered world over H, in both metrics."""
    panels: list[Panel] = []
    keys: list[Key] = []
    for metric in SHOWN_METRICS:
        series = [line for row in DRAWN_ROWS if (line := _row_series(evidence, row, metric, cfg)).points]
        bounds = [line for row in SWEEP_ROWS if (line := _row_series(evidence, CEILING + row, metric, cfg)).points]
        axes = Axes(
            METRIC_NAMES[metric], "horizon H (steps)", f"{METRIC_NAMES[metric]}, %", tuple(map(float, cfg.horizons))
        )
        panels.append(Panel(f"{METRIC_NAMES[metric]} (simulated world)", line_chart(axes, [*series, *bounds])))
        keys = keys_of([*series, *bounds]) or keys
    return sheet(panels, keys)


def _row_series(evidence: Evidence, row: str, metric: str, cfg: ClaimsConfig) -> Series:
    """Return one row of the rendered world over H."""
    figures = per_horizon(evidence, BASE, row, metric, cfg)
    points = tuple(whisker(float(h), f) for h, f in zip(cfg.horizons, figures, strict=False))
    return _series(row, points)


def _series(row: str, points: tuple[Point, ...]) -> Series:
    """Return a line; ceilings are dashed, without marks and bands."""
    if row.startswith(CEILING):
        return Series(name(row), f"{row.removeprefix(CEILING)} ceiling", points, "none", has_band=False)
    return Series(name(row), row, points, MARKS.get(row, "circle"))


def sweep_picture(evidence: Evidence, cfg: ClaimsConfig) -> bytes:
    """Draw M@1 over kappa, a chart per style, ceilings dashed."""
    panels: list[Panel] = []
    keys: list[Key] = []
    for style in cfg.sweep_style:
        lines = []
        for row in (*SWEEP_ROWS, *(CEILING + row for row in SWEEP_ROWS)):
            read = [
                (kappa, reading(evidence, world, row, None, "m1", cfg))
                for world, (kappa, of_style) in sweep_worlds(cfg).items()
                if of_style == style
            ]
            lines.append(_series(row, tuple(whisker(kappa, figure) for kappa, figure in read if figure is not None)))
        series = [line for line in lines if line.points]
        keys = keys_of(series) or keys
        axes = Axes(f"style {style:g}", "kappa", "M@1, %", tuple(cfg.sweep_kappa))
        panels.append(Panel(f"M@1, style {style:g} (simulated worlds, one seed)", line_chart(axes, series)))
    return sheet(panels, keys)
