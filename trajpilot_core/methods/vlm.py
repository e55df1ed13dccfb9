"""Rows of vision-language models, which the stages `vlm` and `vlm_rows` answer (paper, 4.1; docs/decisions/vlm.md).

Rows of runs that set `vlm.rows`; elsewhere they are absent. Answers of a recogniser that is not named by the digest of
its tuned weights have separate rows among the controls, marked UNTUNED.
"""

from dataclasses import replace

from trajpilot_core.methods.base import Method, RowStyle

ENTRY = "vlm_predictions"
PREFIX = "anticipation_"
ZERO_SHOT = Method(
    id="qwen_zs",
    name="Qwen-ZS",
    knows="frames of Start and Goal and the list of all labels; trained on nothing of ours",
    sees="ends",
    role="main",
    models=(),
    predictions=ENTRY,
    style=RowStyle("triangle", "#b00068", "#ff8ad0", dash="4 2"),
)
TUNED = Method(
    id="qwen_sft_llm",
    name="Qwen-SFT+LLM",
    knows="labels of Start and Goal as a tuned model recognises them in frames, the list of all labels, and training "
    "sequences of the scenario",
    sees="ends",
    role="main",
    models=(),
    predictions=ENTRY,
    against={ZERO_SHOT.id: "what tuning and the text model add"},
    style=RowStyle("triangle", "#a0418c", "#ccf091"),
)
UNTUNED = replace(
    TUNED,
    id="qwen_llm_untuned",
    name="Qwen+LLM, UNTUNED",
    knows=TUNED.knows.replace("a tuned model", "a model that no digest of tuned weights names"),
    role="control",
    against={ZERO_SHOT.id: "what recognising the ends one by one and the text model add"},
    style=RowStyle("triangle", "#200040", "#f8f870", dash="2 3"),
)
PLANNING = (ZERO_SHOT, TUNED, UNTUNED)


def _goal_free(row: Method) -> Method:
    return replace(
        row,
        id=f"{PREFIX}{row.id}",
        name=f"{row.name}, no goal",
        knows=row.knows.replace("Start and Goal", "Start"),
        sees="start",
        ceiling="start",
        role="anticipation",
        against={f"{PREFIX}{other}": meaning for other, meaning in row.against.items()},
    )


GOAL_FREE = tuple(_goal_free(row) for row in PLANNING)
