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
    verdicts = Counter(word for row in claims if (word := row.verdict("claim")))
    controls = Counter(f.verdict for row in claims for f in row.findings if f.statement.role == "control")
    lead = reading(evidence, BASE, "oracle", "no_traj", "m1", cfg)
    shares = [reached_share(evidence, BASE, row, cfg, LIMITS) for row in ("no_traj", "endpoint_traj", "oracle")]
    ranking = judge_ranking(evidence, BASE, RANKED, cfg)
    scorer = reading(evidence, BASE, "scorer", "no_traj", "m1", cfg)
    sentences = [
        f"In simulated worlds (not comparable with the paper), of the claims that can be judged {counted(verdicts)}; "
        f"of their controls {counted(controls)}.",
        f"With the true future trajectory Oracle is {change(lead)} points of M@1 above No-Traj "
        f"({levels(evidence, 'oracle', cfg)} against {levels(evidence, 'no_traj', cfg)}).",
        f"Shares of their ceilings that rows have reached, and what is asked: {', '.join(map(share_text, shares))}.",
        f"The paper's Scorer is {change(scorer)} points above No-Traj; that it ranks above chance: {ranking.verdict}.",
        f"{square[0].question} {change(square[0].compared.figure)} points: {square[0].compared.verdict}.",
        f"Scorer+ above rows that decode jointly as well: {plus_text(plus)}.",
    ]
    return wrapped(" ".join(sentences))


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
