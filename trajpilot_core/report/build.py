"""Builds the report of a corpus with plans: reads the tables, draws, renders one offline page, JSON and LaTeX."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from schemas.config import CompletedReport
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import Judgement
from schemas.vlm import EndpointScore, VlmCount
from trajpilot_core.corpora.records.videos import NO_VIDEO
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.stage import AnyStage, Runtime
from trajpilot_core.evaluation.ceiling import NO_CEILING
from trajpilot_core.methods import examined, method
from trajpilot_core.metrics import METRICS, of_table
from trajpilot_core.report import health, loaded
from trajpilot_core.report.committed import notices
from trajpilot_core.report.figures import rows
from trajpilot_core.report.figures.curves import training_charts
from trajpilot_core.report.gallery import windows as gallery
from trajpilot_core.report.gallery.pictures import Thumbnail, frames_of, three_views
from trajpilot_core.report.offline import FORMAT, Page, Section, checks_table, records, rendered
from trajpilot_core.report.tables import published
from trajpilot_core.report.tables import results as tables
from trajpilot_core.report.tables.ceilings import absence, broken_ceilings, ceiling_tables
from trajpilot_core.report.tables.table import LEGEND, Table, number, records_table, row_label
from trajpilot_core.report.verdict import opening_table, story_of, verdict_of
from trajpilot_core.store.reading import Inputs

OTHER = "Other checks"
GROUPS = {
    "demo": "What the demo must show",
    "trained": "Do models and rows count as trained?",
    "leak": "No test data was seen in training",
    "ceiling": "No row knows more than it can",
    "identity": "Identities that hold by definition",
}
RESULTS = (
    "Values in percent, ED in steps; in brackets the 95 % interval over takes. Bold: the best of the rows that count "
    "as trained and do not see the truth, if it is above every floor and not tied at the printed digits. In "
    "differences ▲ ▼ mark intervals that exclude zero. Oracle is a condition (true head motion), not an upper bound."
)
HORIZON = "Bands are 95 % intervals over takes."
GAINS = (
    "A retrieved trajectory contains no information about the middle of this window beyond its endpoints. A gain over "
    "No-Traj therefore has other sources: the window’s own motion during Start and Goal, the candidates’ labels, their "
    "trajectories, or averaging. Each line compares a row with one that lacks a part of it; ▲ ▼ mark intervals that "
    "exclude zero."
)
GATE = (
    "The gate decides for each window whether a retrieved trajectory is used; where it is closed, the answer of "
    "No-Traj is returned. The overall gain is therefore the open rate times the gain on the opened windows."
)
POOL = "“oracle” columns use the truth: a diagnostic, not a row."
ALARM = (
    "A row is above its ceiling. That is impossible: either it saw something that it must not see, or the ceiling is "
    "wrong. Do not rely on any figure of this page until the cause is known."
)
TRAINING = (
    "Chain final, first seed. The epoch with the best dev score is kept; dev takes are part of no training and of no "
    "retrieval bank."
)


class Report(NamedTuple):
    """The output of the stage."""

    documents: Mapping[str, bytes]
    rejects: Sequence[Reject]
    n_examples: int


class Shown(NamedTuple):
    """What the page shows of a run."""

    read: loaded.Loaded
    results: tables.Results
    cfg: CompletedReport
    bounds: Sequence[Table]
    """The ceilings; none in a run without them."""
    broken: Sequence[str]
    """A sentence for each figure above its ceiling."""
    tables: Mapping[str, Table]
    """Id -> table, in reading order."""
    gallery: Markup


def build(inputs: Inputs, cfg: CompletedReport, stages: Sequence[AnyStage], runtime: Runtime) -> Report:
    """Build all documents; `runtime`: the folder of the videos, and the number of decoders."""
    steps = CountedSteps(runtime.progress, after=3)
    steps.begin("reading the tables")
    read = loaded.load(inputs, stages)
    results = tables.results_of(read.metrics, read.judgements)
    drawn = gallery.draw_gallery(inputs, cfg)
    examples = gallery.examples(drawn, gallery.load_facts(drawn, inputs))
    files = gallery.video_files(drawn, inputs) if cfg.frames else {}
    steps.begin("decoding the frames of the gallery")
    pictures, rejects = _pictures(examples, files, cfg, runtime)
    steps.begin("writing the pages")
    shown_tables = [
        *opening_table(results, has_heads=cfg.has_heads),
        *tables.all_tables(results),
        *tables.anticipation_tables(results),
        *tables.attribution_tables(results),
    ]
    drawn_gallery = rendered(
        "gallery.html.j2",
        drawn=drawn,
        examples=examples,
        thumbnails=pictures,
        cfg=cfg,
        classes=gallery.CLASSES,
        gallery_row=method(drawn.row) if drawn.row else None,
        examined_name=examined().name,
        number=number,
        views=three_views,
    )
    shown = Shown(
        read,
        results,
        cfg,
        ceiling_tables(read.ceilings, results.undertrained),
        broken_ceilings(read.ceilings),
        {table.id: table for table in shown_tables},
        drawn_gallery,
    )
    page = _page(shown)
    documents = page.documents(
        ("report.html", "report.json", "metrics.tex"),
        [*shown_tables, *shown.bounds],
        f"{loaded.caption(read, cfg)}. {LEGEND if results.undertrained else ''}".strip(),
        format=FORMAT,
        state=page.state,
        **{name: records(getattr(read, name)) for name in loaded.RECORDS},
        ceilings_say=[*shown.broken],
        undertrained=[*sorted(results.undertrained)],
        gallery={name: list(windows) for name, windows in drawn.classes.items()},
        gallery_sizes=dict(drawn.sizes),
        gallery_windows=drawn.n_windows,
        gallery_row=drawn.row,
    )
    return Report(documents, rejects, len(examples))


def _pictures(
    shown: Sequence[gallery.Example], files: Mapping[str, str], cfg: CompletedReport, runtime: Runtime
) -> tuple[dict[tuple[str, float], Thumbnail], list[Reject]]:
    """Decode the frames of the gallery's windows and of the retrieved ones, one job per video."""
    times: dict[str, set[float]] = {}
    for example in shown:
        for window in (example, example.retrieved):
            if window is not None:
                times.setdefault(window.take_id, set()).update(window.times_s)
    if "://" in runtime.data_root:
        reason = Thumbnail(None, "frames are shown for a local data root only")
        return {(take, time): reason for take in files for time in times.get(take, ())}, []
    absent = {take for take in times if take not in files}
    frames, rejects = frames_of(times, files, runtime.data_root, cfg.thumbnail_px, runtime.workers)
    without = [take for take in times if not files.get(take, "absent")]
    frames |= {(take, time): Thumbnail(None, NO_VIDEO) for take in without for time in times[take]}
    if cfg.frames:
        rejects += [reject("report", RejectCode.VIDEO_MISSING, t, "the take names no video", n_units=0) for t in absent]
    return frames, rejects


def _page(shown: Shown) -> Page:
    read, results, cfg = shown.read, shown.results, shown.cfg
    # groups of which a check does not hold are first and not folded
    groups = sorted(_groups(read.judgements), key=lambda group: all(check.verdict == "holds" for check in group[1]))
    n_open = sum(any(check.verdict != "holds" for check in checks) for _, checks in groups)
    check_tables = [checks_table(_chip(group)[1], group[1]) for group in groups]
    verdict = verdict_of(
        results,
        simulated=read.simulated,
        has_heads=cfg.has_heads,
        is_broken=bool(shown.broken),
        judgements=read.judgements,
    )
    opening = [shown.tables[id_] for id_ in ("opening",) if id_ in shown.tables]
    about_bands = f"{HORIZON} {rows.BOUNDS}" if read.ceilings else HORIZON
    sections = [
        *_of_results(shown),
        Section("horizon", "Over the horizon", (), [rows.horizon_charts(results, read.ceilings)], about_bands),
        *_of_gains(shown),
        Section("checks", "Checks", check_tables, n_open=n_open),
        *_of_run(shown),
    ]
    return Page(
        title=f"TrajPilot on {loaded.corpus_title(read, cfg)}",
        banner="; ".join(notices(cfg.released, simulated=read.simulated)),
        sections=[s for s in sections if s.tables or s.charts or s.body or s.id in ("ceilings", "limits")],
        facts=[*loaded.facts(read, results, cfg), *tables.absent_rows(results)],
        verdict=verdict.text,
        is_simulated=read.simulated,
        question=story_of(results.variants()).question,
        state=verdict.state,
        alarm=f"{ALARM} {'; '.join(shown.broken)}." if shown.broken else "",
        opening=Section(
            "opening", "", opening, [[rows.gain_chart(results)]], "Percent, with 95 % intervals over takes."
        ),
        checked=[*map(_chip, _groups(read.judgements))],
    )


def _of_results(shown: Shown) -> list[Section]:
    results, cfg = shown.results, shown.cfg
    scored = [table for id_, table in shown.tables.items() if not id_.startswith(("opening", "against-"))]
    reason = next((row.detail for row in shown.read.judgements if row.check == NO_CEILING), "")
    unbounded = absence(simulated=shown.read.simulated, reason=reason)
    legend = f"\n{LEGEND}" if results.undertrained else ""
    meanings = "; ".join(f"{name}: {METRICS[name].description}" for name in of_table("open"))
    printed = [published.published_for(results, cfg), published.anticipation_for(results, cfg)]
    source = "; ".join(table.source for table in printed if table)
    compared = published.published_table([row for table in printed for row in published.comparisons(results, table)])
    return [
        Section("results", "Results", scored, text=f"{RESULTS}\n{meanings}.{legend}"),
        Section("ceilings", "Ceilings", shown.bounds, text="" if shown.bounds else unbounded, n_open=0),
        Section("published", "Published values", compared, text=f"Source: {source}."),
    ]


def _of_gains(shown: Shown) -> list[Section]:
    read = shown.read
    controls = [
        *records_table("Shuffled middle trajectories", read.shuffles),
        *records_table("Samplings of the plans of a row", read.samplings),
    ]
    against = [table for id_, table in shown.tables.items() if id_.startswith("against-")]
    pool = records_table("Headroom of the retrieved pool", read.headroom, POOL)
    return [
        Section("controls", "Controls", controls, [[rows.control_chart(shown.results)]], n_open=0),
        Section("retrieval", "Where gains come from", against, text=GAINS),
        Section("gate", "The gate", records_table("The gate, points of M@1 over No-Traj", read.gate), text=GATE),
        Section("pool", "The retrieved pool", pool, n_open=0),
    ]


def _of_run(shown: Shown) -> list[Section]:
    read, results = shown.read, shown.results
    problems = health.problems(read.rejects)
    counted = [health.counts(read.takes, read.segments, read.windows), health.flows(read.outputs, read.rejects)]
    measured = [
        *records_table("Distances of segments in the features", read.pair_distances),
        *records_table(
            "Share of true plans that come closer to the goal with every middle step, %", read.progress_shares
        ),
    ]
    given = tuple((row_label(row, results.undertrained), method(row).knows) for row in results.variants())
    answers = answer_tables(read.vlm_counts, read.endpoint_cache)
    return [
        Section("diagnostics", "Diagnostics of the features", measured, text="Measured before training.", n_open=0),
        Section("answers", "Answers of vision-language models", answers, n_open=2),
        Section("training", "Training", (), training_charts(read.curves), TRAINING),
        Section("data", "Data health", [*counted, *([problems] if problems.rows else [])], n_open=2),
        Section("gallery", "Gallery", body=shown.gallery),
        Section("rows", "Rows", [Table("What each row is given", ("row", "besides Start and Goal"), given)], n_open=0),
        Section("limits", "Limits", text="\n".join(loaded.limits(read, shown.cfg))),
    ]


def answer_tables(counts: Sequence[VlmCount], endpoints: Sequence[EndpointScore]) -> list[Table]:
    """Return the tables of answers and of recognised endpoints."""
    adapters = {row.adapter for row in endpoints if row.adapter}
    by = f"the tuned model {', '.join(adapters)}" if adapters else "an UNTUNED model"
    return [
        *records_table("How the answers of vision-language models were parsed", counts),
        *records_table(f"Endpoints as recognised by {by}", endpoints),
    ]


def _groups(judgements: Sequence[Judgement]) -> list[tuple[str, list[Judgement]]]:
    """Return (title, checks) per group of checks, in the order of the page."""
    groups: dict[str, list[Judgement]] = {title: [] for title in (*GROUPS.values(), OTHER)}
    for check in judgements:
        kind, _, text = check.check.partition(": ")
        groups[GROUPS.get(kind, OTHER)].append(check.replace(check=text) if kind in GROUPS else check)
    return [(title, checks) for title, checks in groups.items() if checks]


def _chip(group: tuple[str, list[Judgement]]) -> tuple[str, str]:
    """Return the state of a group of checks, and how many hold."""
    title, checks = group
    held = sum(check.verdict == "holds" for check in checks)
    is_bad = any(check.verdict in ("fails", "undertrained") for check in checks)
    return "ok" if held == len(checks) else "mixed" if is_bad else "open", f"{held} of {len(checks)} {title}"
