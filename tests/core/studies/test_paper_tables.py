"""The published tables as data: whole, consistent, and as the paper's LaTeX source (not distributed) has them.

Values are kept as printed, so that the last digit shows how far each was rounded. `table` and `section` are the labels
of the paper's own source; numbers of the running text have no table.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pytest
from checkout import OUTSIDE

import trajpilot_core.paper as paper
from trajpilot_core.paper.published import ATOMIC, table_rows

FILES = [row["file"] for row in table_rows("index")]
PAPER = {file: table_rows(file) for file in FILES}
TABLES = [file for file in FILES if file != "text"]
SOURCE = OUTSIDE / "paper" / "trajpilot.tex"
WORDS = {("trajectory_over_text", "gain_ratio"): "twenty times", ("ground_truth", "monotonic_count"): "only three of"}
"""Numbers that the text spells out."""
Rows = list[dict[str, str]]
KEY = ("row", "dataset", "horizon", "metric")
COLUMNS = ("table", "section", *KEY, "value", "bold")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
OPEN = ("M@1", "M@5", "MSeq", "F@1", "F@5", "FSeq")
FUTURE = ("Future R@1", "Future R@5", "Future Seq", "Full R@1", "Full R@5", "Full Seq")
EK100 = ("verb_R@5", "noun_R@5", "action_R@5", "action_accuracy")
CLOSED = ("keystep", "goalstep", "egoper")
ROWS = {
    r"\ours{} (\notraj)": "no_traj",
    r"\ours{} (\retrtraj)": "scorer",
    r"\ours{} (\oracletraj)": "oracle",
    r"\ours{} (\notraj{})": "no_traj",
    r"\ours{} (\retrtraj{})": "scorer",
    r"\ours{} (\oracletraj{})": "oracle",
    r"\viterbinet{}": "viterbiplannet",
    "SCHEMA": "schema",
    "PDPP": "pdpp",
    "Qwen-ZS": "qwen_zs",
    "Qwen-SFT$+$LLM": "qwen_sft_llm",
    r"Aria$\to$Aria": "aria_to_aria",
    r"PI3$\to$PI3": "pi3_to_pi3",
    r"Aria$\to$PI3": "aria_to_pi3",
    r"Aria$+$PI3$\to$PI3": "aria_and_pi3_to_pi3",
    "Endpoint segments": "segments",
    "Endpoint R@1": "R@1",
    "Endpoint R@5": "R@5",
    "Exact text-bank projection + bank cosine": "exact_projection",
    "Fallback projection": "fallback_projection",
    r"\egoexo{} Keystep": "keystep",
    "Ego4D GoalStep": "goalstep",
    "EgoPER": "egoper",
    "Adjacent segments, same recording": "adjacent_same_recording",
    "Far segments, same recording": "far_same_recording",
    "Same action text, different recording": "same_action_other_recording",
    "Random cross-recording pair": "random_other_recording",
    "Visual-only attentive probe": "visual_only_probe",
    r"\vjepag{} attentive probe": "attentive_probe",
    "V-JEPA~2.1 attentive probe": "attentive_probe",
    "InAViT": "in_avit",
    "Video-LLaMA": "video_llama",
    "PlausiVL": "plausivl",
    "V-JEPA~2 ViT-g": "vjepa2_vit_g",
    "V-JEPA~2.1 ViT-g": "vjepa2.1_vit_g",
    "V-JEPA~2.1 ViT-G": "vjepa2.1_vit_G",
}
DROPOUT = ("no_dropout_traj", "goal_dropout_traj", "no_dropout_no_traj", "goal_dropout_no_traj")
CONDITIONS = ("none", "text", "trajectory", "text_and_trajectory", "shuffled_text", "shuffled_trajectory")


class Read(NamedTuple):
    row: str
    dataset: str
    horizon: str
    metric: str
    value: str
    bold: bool


def plain(text: str) -> str:
    """Thousands separators, math dollars, percent signs and thin spaces removed."""
    return text.replace("{,}", "").replace("$", "").replace(r"\%", "").replace("\\,", "")


def grid(tex: str, label: str) -> list[list[str]]:
    """The cells of the one tabular that stands in the environment of `label`; rules and empty rows removed."""
    at = tex.index(rf"\label{{{label}}}")
    start = max(tex.rfind(rf"\begin{{{kind}}}", 0, at) for kind in ("table", "table*", "figure"))
    end = re.compile(r"\\end\{(?:table\*?|figure)\}").search(tex, at)
    body = tex[start : end.start()]
    inside = re.search(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", body, re.S)
    text = re.sub(r"\\(?:toprule|midrule|bottomrule)|\\cmidrule\(lr\)\{[^}]*\}", "", inside[1])
    rows = [[cell.strip() for cell in row.split("&")] for row in text.split(r"\\")]
    return [row for row in rows if any(row)]


def numbers(cell: str) -> list[tuple[str, bool]]:
    """Every number of a cell with whether it is bold."""
    is_bold = "bf{" in cell
    return [(found, is_bold) for found in NUMBER.findall(plain(cell).replace("---", ""))]


def named(cell: str) -> str:
    return ROWS[re.sub(r"~?\\citep?\{[^}]*\}", "", cell).strip()]


def horizon_of(cell: str, last: str) -> str:
    found = re.fullmatch(r"\\multirow\{\d\}\{\*\}\{(\d)\}", cell)
    return found[1] if found else last


def by_horizon(tex: str, label: str, columns: list[tuple[str, str]]) -> Iterator[Read]:
    """Tables with H in the first column and the method in the second."""
    horizon = ""
    for row in grid(tex, label):
        if len(row) < 3 or row[1] not in ROWS:
            continue
        horizon = horizon_of(row[0], horizon)
        for (dataset, metric), cell in zip(columns, row[2:], strict=True):
            ((value, bold),) = numbers(cell)
            yield Read(named(row[1]), dataset, horizon, metric, value, bold)


def by_row(tex: str, label: str, columns: list[tuple[str, str]]) -> Iterator[Read]:
    """Tables with the method in the first column and one number, or none, in each other."""
    for row in grid(tex, label):
        if re.sub(r"~?\\citep?\{[^}]*\}", "", row[0]).strip() not in ROWS:
            continue
        for (dataset, metric), cell in zip(columns, row[1:], strict=False):
            metrics = metric.split("/")
            for name, (value, bold) in zip(metrics, numbers(cell), strict=False):
                yield Read(named(row[0]), dataset, "", name, value, bold)


def dropout(tex: str, label: str) -> Iterator[Read]:
    """Tables with three numbers in each cell; the last line is the average over horizons."""
    for row in grid(tex, label)[1:]:
        horizon = "" if row[0] == "Overall" else row[0]
        for method, cell in zip(DROPOUT, row[1:], strict=True):
            for metric, (value, bold) in zip(FUTURE[:3], numbers(cell), strict=True):
                yield Read(method, "", horizon, metric, value, bold)


def motivation(tex: str, label: str) -> Iterator[Read]:
    for metric, row in zip(("val_l1", "gain_over_none"), grid(tex, label)[1:], strict=True):
        for method, cell in zip(CONDITIONS, row[1:], strict=True):
            for value, bold in numbers(cell):
                yield Read(method, "", "1", metric, value, bold)


def monotonicity(tex: str, label: str) -> Iterator[Read]:
    head, row = grid(tex, label)
    for horizon, cell in zip(head[1:], row[1:], strict=True):
        ((value, bold),) = numbers(cell)
        yield Read("ground_truth", "", horizon, "monotonic_fraction", value, bold)


def headroom(tex: str, label: str) -> Iterator[Read]:
    names = ("same_step_recall", "any_step_recall", "cosine_local", "cosine_random")
    for row in grid(tex, label)[1:]:
        pool = numbers(row[0].replace("top-", ""))[0][0]
        cells = [value for cell in row[1:] for value in numbers(cell)]
        for metric, (value, bold) in zip(names, cells, strict=True):
            yield Read(f"top_{pool}", "", "5", metric, value, bold)


def columns(*names: str, dataset: str = "") -> list[tuple[str, str]]:
    return [(dataset, name) for name in names]


def read_table(tex: str, label: str) -> dict[tuple[str, ...], tuple[str, bool]]:
    """All numbers of one table: KEY -> value without a plus sign, and whether it is bold."""
    closed = [(dataset, metric) for dataset in CLOSED for metric in ("SR", "mAcc", "mIoU", "ED")]
    hyper = ("labels", "lambda_bridge", "transition_weight", "smoothing/temperature")
    readers = {
        "tab:atomic_results_full": lambda: by_horizon(tex, label, columns(*OPEN)),
        "tab:atomic_anticipation_full": lambda: by_horizon(tex, label, columns(*FUTURE)),
        "tab:coarse_planning_full": lambda: by_horizon(tex, label, closed),
        "tab:coarse_planning_overall": lambda: by_row(tex, label, [c for c in closed if c[1] != "ED"]),
        "tab:pi3_robustness": lambda: by_row(tex, label, columns("Mid mAcc", "Full mAcc", dataset="keystep")),
        "tab:qwen3vl_endpoint_cache": lambda: by_row(tex, label, columns("count", "percentage")),
        "tab:closed_vocab_hparams": lambda: by_row(tex, label, columns(*hyper)),
        "tab:vjepa_geometry": lambda: by_row(tex, label, columns("mean_l1", "mean_cosine")),
        "tab:ek100": lambda: (r for r in by_row(tex, label, columns("params", *EK100)) if r.metric in EK100),
        "tab:basketball_shot_outcome": lambda: by_row(
            tex, label, columns("accuracy", "balanced_accuracy", "made_recall", "miss_recall")
        ),
        "tab:goal_dropout_fullgoal": lambda: dropout(tex, label),
        "tab:goal_dropout_anticipation_full": lambda: dropout(tex, label),
        "tab:motivation": lambda: motivation(tex, label),
        "tab:monotonicity": lambda: monotonicity(tex, label),
        "tab:retrieval_headroom": lambda: headroom(tex, label),
    }
    return {r[:4]: (r.value.lstrip("+"), r.bold) for r in readers[label]()}


def section_text(tex: str, label: str) -> str:
    """The source from one section label to the next heading of a section, captions included."""
    start = tex.index(rf"\label{{{label}}}")
    heading = re.compile(r"\\(?:sub)?section\{").search(tex, start)
    return tex[start : heading.start() if heading else len(tex)]


def by_key(rows: Rows) -> dict[tuple[str, ...], tuple[str, bool]]:
    return {tuple(row[name] for name in KEY): (row["value"].lstrip("+"), row["bold"] == "bold") for row in rows}


def test_the_index_names_every_file_once() -> None:
    folder = Path(paper.__file__).parent / "tables"
    assert sorted(FILES) == sorted(path.stem for path in folder.glob("*.csv") if path.stem != "index")


def test_the_tables_have_the_numbers_of_the_paper() -> None:
    sizes = {file: len(rows) for file, rows in PAPER.items()}
    assert sizes[ATOMIC] == sizes["atomic_anticipation_full"] == 6 * 5 * 6
    assert sizes["coarse_planning_full"] == 6 * 6 * 3 * 4
    assert sizes["goal_dropout_fullgoal"] == sizes["goal_dropout_anticipation_full"] == 7 * 4 * 3


def test_all_files_have_the_same_columns_and_hold_each_number_once() -> None:
    for file, rows in PAPER.items():
        assert tuple(rows[0]) == COLUMNS
        assert all(re.fullmatch(r"[+-]?\d+(\.\d+)?", row["value"]) for row in rows)
        assert all(" " not in row["row"] for row in rows)
        assert len(by_key(rows)) == len(rows), file


@pytest.fixture(scope="module")
def tex() -> str:
    if not SOURCE.is_file():
        pytest.skip(f"the paper's LaTeX source is not at {SOURCE}")
    return SOURCE.read_text()


def differing(rows: Rows, tex: str) -> list[str]:
    """Numbers of one file that the source prints otherwise, or not at all, or that the file lacks."""
    ours, theirs = by_key(rows), read_table(tex, rows[0]["table"])
    return [
        f"{key}: {ours.get(key)}, printed {theirs.get(key)}"
        for key in ours | theirs
        if ours.get(key) != theirs.get(key)
    ]


def test_every_table_is_as_the_source_prints_it_and_one_wrong_digit_is_seen(tex: str) -> None:
    for file in TABLES:
        *rows, last = PAPER[file]
        assert differing([*rows, last], tex) == [], file
        assert len(differing([*rows, last | {"value": str(Decimal(last["value"]) + 1)}], tex)) == 1, file
        text = section_text(tex, last["section"])
        assert rf"\label{{{last['table']}}}" in text or rf"\ref{{{last['table']}}}" in text, file


def test_every_number_of_the_text_stands_in_its_section(tex: str) -> None:
    for row in PAPER["text"]:
        value, words = row["value"].lstrip("+"), WORDS.get((row["row"], row["metric"]))
        text = section_text(tex, row["section"])
        if row["row"] == "hyperparameter_table":
            (columns,) = re.findall(r"\\begin\{tabular\}\{([lcr]+)\}", text)
            header = grid(tex, "tab:closed_vocab_hparams")[0]
            counts = {"columns_declared": len(columns), "columns_headed": len(header)}
            assert counts[row["metric"]] == int(value)
        elif words is not None:
            assert words in " ".join(text.split()), row
        else:
            running = re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", text, flags=re.S)
            found = NUMBER.findall(plain(running).replace("--", " "))
            assert f"+{value}" in found or value in found, row
