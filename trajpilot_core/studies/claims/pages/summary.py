"""What the tables of the claims say in a few sentences, chosen by rule: the block of the README."""

from collections import Counter
from collections.abc import Sequence

from schemas.claims import BASE, LIMITS, ClaimsConfig
from trajpilot_core.studies.claims.evidence.ranking import judge_ranking
from trajpilot_core.studies.claims.evidence.readings import METRIC_NAMES, change, name, rate, reading
from trajpilot_core.studies.claims.evidence.shares import RANKED, reached_share
from trajpilot_core.studies.claims.evidence.tables import CEILING, Evidence
from trajpilot_core.studies.claims.verdicts.doubts import share_text
from trajpilot_core.studies.claims.verdicts.families import Compared, SquareAnswer, stays_main
from trajpilot_core.studies.claims.verdicts.judge import Judged
from trajpilot_core.studies.claims.verdicts.words import Verdict

BLOCK = "evidence"
MARK = f"<!-- computed: {BLOCK} -->"
NOTHING_YET = (
    "The worlds of the claims have not been computed with the present settings: nothing is shown yet, and what an "
    "earlier, smaller run showed was withdrawn ([docs/decisions/claims.md](docs/decisions/claims.md))."
)
WIDTH = 120
SHOWN: dict[str, str] = {"holds": "shown", "undertrained": "not shown"}
"""A verdict on a ranking, in a sentence."""
SHORT_OF: tuple[Verdict, ...] = ("undertrained", "underpowered", "confounded by training")
"""Verdicts that speak of the models, not of the claim."""
UNFINISHED = (
    ", because the models stop short of what their training could reach: sizes and orders of rows may still change."
)
SAID: dict[Verdict, str] = {"holds": "is supported", "fails": "is contradicted"}
"""What becomes of a claim with such a verdict; every other verdict leaves it open."""


def readme_text(
    evidence: Evidence,
    claims: Sequence[Judged],
    plus: Sequence[Compared],
    square: Sequence[SquareAnswer],
    cfg: ClaimsConfig,
) -> str:
    """Say what was found, or that nothing was run; simulated, and not comparable with the paper.

    Args:
        evidence: the tables.
        claims: judged.
        plus: Scorer+ against what it must be above.
        square: the 2 x 2 of the retrieval attention.
        cfg: planned seeds and resampling.
    """
    if not evidence.scores.get(BASE):
        return wrapped(NOTHING_YET)
    controls = Counter(
        f.verdict
        for row in claims
        for f in row.findings
        if (f.statement.role, f.statement.kind == "reported") == ("control", False)
    )
    lead = reading(evidence, BASE, "oracle", "no_traj", "m1", cfg)
    shares = [reached_share(evidence, BASE, row, cfg, LIMITS) for row in ("no_traj", "endpoint_traj", "oracle")]
    ranking = judge_ranking(evidence, BASE, RANKED, cfg)
    scorer = reading(evidence, BASE, "scorer", "no_traj", "m1", cfg)
    pool = reading(evidence, BASE, "pool_mean", "scorer", "m1", cfg)
    sentences = [
        f"In simulated worlds, not comparable with the paper: {in_short(claims)} Of the controls {counted(controls)}.",
        f"With the true future trajectory Oracle is {change(lead)} points of M@1 above No-Traj "
        f"({levels(evidence, 'oracle', cfg)} against {levels(evidence, 'no_traj', cfg)}).",
        f"Shares of their ceilings that rows have reached, and what is asked: {', '.join(map(share_text, shares))}.",
        f"The paper's Scorer is {change(scorer)} points above No-Traj; that its gate and its ranking do better than "
        f"chance is {SHOWN.get(ranking.verdict, ranking.verdict)}. Pool-Mean, which averages what is retrieved, is "
        f"{change(pool)} points above the Scorer.",
        f"{square[0].question} {change(square[0].compared.figure)} points: {square[0].compared.verdict}.",
        f"Scorer+ above rows that decode jointly as well: {plus_text(plus)}.",
    ]
    return wrapped(" ".join(sentences))


def in_short(claims: Sequence[Judged]) -> str:
    """Say how many claims are supported or contradicted, how many are left open and why."""
    verdicts = Counter(word for row in claims if (word := row.verdict("claim")))
    decided = [f"{verdicts[word]} {said}" for word, said in SAID.items() if verdicts[word]]
    left: Counter[Verdict] = Counter({word: n for word, n in verdicts.items() if word not in SAID})
    if decided or not left:
        opened = f"; {left.total()} are left open ({counted(left)})" if left else ""
        return f"of the claims that can be judged {', '.join(decided) or 'none is decided'}{opened}."
    opened = f"no claim is confirmed or refuted. All {left.total()} that can be judged are left open ({counted(left)})"
    return f"{opened}{UNFINISHED if set(left) <= set(SHORT_OF) else '.'}"


def counted(words: Counter[Verdict]) -> str:
    """Return how often each word occurs."""
    return ", ".join(f"{n} {word}" for word, n in words.most_common()) or "none was run"


def levels(evidence: Evidence, row: str, cfg: ClaimsConfig) -> str:
    """Return the level of a row and of its exact ceiling."""
    ceiling = reading(evidence, BASE, f"{CEILING}{row}", None, "m1", cfg)
    return f"{rate(reading(evidence, BASE, row, None, 'm1', cfg))} % of {rate(ceiling)} that can be known"


def plus_text(compared: Sequence[Compared]) -> str:
    """Say whether Scorer+ is above its rivals in both metrics, and what that makes of it."""
    if stays_main(compared) == "not run":
        return "not run"
    short = [f"{name(one.reference)} in {METRIC_NAMES[one.metric]}" for one in compared if one.shown != "holds"]
    return f"not shown against {', '.join(short)}: no main row" if short else "in both metrics, so it stays a main row"


def wrapped(text: str) -> str:
    """Break a paragraph into lines of the width of the pages."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
