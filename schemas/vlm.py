"""Rows of vision-language models: settings of their stages, requests, and answers.

Source: paper, appendix on vision-language baselines; docs/decisions/vlm.md.
"""

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.base import Record
from schemas.features import TextConfig
from schemas.places import Place

VlmRow = Literal["qwen_zs", "qwen_sft_llm"]
VLM_ROWS: tuple[VlmRow, ...] = ("qwen_zs", "qwen_sft_llm")
"""Rows of the paper: one request a window; or endpoints recognised one by one, and a text model that fills the rest."""
VlmBackend = Literal["batch_file", "http"]
"""Source of answers: another program, through files, or an OpenAI-compatible server."""
Question = Literal["plan", "anticipate", "segment", "fill", "continue"]
"""plan, anticipate: all labels of a window from its frames, with the goal or without; segment: the label of one
segment; fill, continue: the steps between or after recognised endpoints, from text alone."""
Section = Literal["instruction", "bank", "frames", "exemplars", "sequences", "incomplete"]
"""Purpose of a part of a prompt: the linter allows labels of a window's middle only in `bank` and `sequences`."""
FAILED = "vlm:failed"
"""Placeholder for a label missing in an answer: no label has this name, so it is always wrong."""


def tuned_name(adapter: str | None) -> str:
    """Return the name of tuned weights if it ends in `@` and digits of their sha256; else empty: untuned."""
    return adapter if adapter and re.search(r"@[0-9a-f]{16,64}$", adapter) else ""


class VlmServer(Record):
    """How a server is reached, and what may be sent to it; does not affect requests or answers.

    Source: docs/decisions/vlm.md. Its API key is not a setting: deployments/settings.py reads it from the environment.
    """

    url: Place = "http://127.0.0.1:8000/v1"
    """Address to which `/chat/completions` is added. One that is not loopback needs `may_send` and `token_limit`."""
    may_send: str = ""
    """Corpus whose frames may leave this machine, as `ingest.corpus` names it; empty: none. Its licence binds you."""
    token_limit: int | None = Field(None, ge=1)
    """Stop when all answers in the folder `answers` have used this many tokens in prompts and answers, as counted by
    servers; None: no limit, allowed only for a server on loopback."""
    tries: int = Field(5, ge=1)
    """Attempts per request if the server is busy, fails or does not respond."""
    timeout_s: float = Field(600.0, gt=0)
    """Longest time that a whole answer may take, in seconds."""
    parallel: int = Field(1, ge=1, le=256)
    """Requests of one take that are sent at once. Their answers may exceed the token limit."""


class VlmConfig(Record):
    """Rows, their models, and how requests are made. Source: paper, appendix on vision-language baselines."""

    rows: tuple[VlmRow, ...] = ()
    """Additional rows of a run; none by default."""
    backend: VlmBackend = "batch_file"
    """Source of answers (docs/vlm.md)."""
    server: VlmServer = VlmServer()
    """Server of the back end `http`."""
    model: Place = "Qwen/Qwen3-VL-32B-Instruct"
    """Name of the vision-language model in the answering program. Source: paper; the exact id is unverified."""
    adapter: Place | None = None
    """Name of the tuned weights that recognise segments, in the answering program: a name, `@` and at least 16 digits
    of their sha256. Under any other name, and with None, the row counts as untuned, which is not the paper's."""
    filler: Place = "Qwen/Qwen3-30B-A3B"
    """Name of the text model that fills the middles. The paper: Qwen3-30B; the id is unverified."""
    bank_first: bool = True
    """Put the bank first in a prompt, so that a server with a prefix cache computes its keys and values once. A
    deviation: in the paper it comes last."""
    n_frames: int = Field(16, ge=1, le=64)
    """Frames per segment. Source: paper."""
    size_px: int = Field(336, ge=32, le=1024)
    """Frames are squashed to this square; the paper's longest side, and its head videos are square."""
    exemplars: int = Field(32, ge=0)
    """Labels from other scenarios in the prompt for a segment. Source: paper."""
    sequences: int = Field(8, ge=0, le=8)
    """Most training sequences of the scenario in a prompt. Source: paper."""
    new_tokens: int = Field(256, ge=8)
    """Longest answer for a window, tokens. Source: paper."""
    segment_tokens: int = Field(64, ge=4)
    """Longest answer for a segment, tokens. Source: paper."""
    seed: int = 7
    """Samples exemplars, sequences and the subset of windows. Source: paper, for its training."""
    windows_per_horizon: int | None = Field(None, ge=1)
    """Request this many test windows per horizon, and score every row only on these; None: all."""
    answers: Place = "runs/vlm-answers"
    """Folder of answers, named by the digest of their requests. A request with an answer in it is not sent again."""
    decode_timeout_s: float = Field(120.0, gt=0)
    """A take whose decoder does not respond for longer is rejected."""

    @model_validator(mode="after")
    def _no_row_twice(self) -> Self:
        if len(set(self.rows)) != len(self.rows):
            raise ValueError(f"a row is named twice in {', '.join(self.rows)}")
        return self


class CompletedVlm(VlmConfig):
    """With what follows from the settings of other stages."""

    corpus: str = ""
    """Reader of the takes."""
    anticipates: bool = False
    """Also request each row without a goal."""
    text: TextConfig = TextConfig()
    """Text encoder of the bank and of labels outside it."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the run's other rows: an answer at temperature 0 is used for each of them."""


class VlmPart(Record):
    """One piece of a message: text, or frames in order of time."""

    section: Section
    text: str = ""
    frames: tuple[str, ...] = ()
    """Sha256 of the RGB bytes of each frame."""


class VlmMessage(Record):
    """One message of a conversation."""

    role: Literal["system", "user"]
    parts: tuple[VlmPart, ...]


class VlmRequest(Record):
    """One request; its digest covers all of it, so that equal digests are equal requests."""

    question: Question
    model: str
    adapter: str | None = None
    messages: tuple[VlmMessage, ...]
    items: int
    """Number of labels expected in the answer."""
    max_tokens: int
    temperature: float = 0.0


class VlmReply(Record):
    """The answer to one request."""

    request: str
    """Digest of the request."""
    text: str
    answered_by: str
    """Name of the model in its back end."""
    tokens_in: int | None = None
    tokens_out: int | None = None


class VlmAnswer(Record):
    """One answer as stored by the stage `vlm`."""

    take_id: str
    row: VlmRow
    question: Question
    unit: str
    """Window, or segment if the question is about a segment."""
    horizon: int
    """1 for a segment."""
    request: str
    """Digest of the request."""
    adapter: str
    """Tuned weights named in the request; empty: none."""
    text: str
    answered_by: str


class VlmCount(Record):
    """Counts of parsed answers of a row for one horizon."""

    variant: str
    horizon: int
    """1 for single segments."""
    n_answers: int
    n_failed: int
    """No JSON could be read: wrong at every position, never left out."""
    n_repaired: int
    """Too long or too short: cut, or filled with its last label."""
    n_labels: int
    n_exact: int
    """Labels that are in the bank."""
    n_projected: int
    """Labels that are not in the bank: the nearest one by the text encoder."""
    n_blank: int
    """Positions left blank: wrong."""


class EndpointScore(Record):
    """One quantity of the recogniser of segments, over the unique endpoints of the asked windows."""

    row: Literal["segments", "R@1", "R@5", "exact_projection", "fallback_projection", "failed"]
    count: int
    percentage: float
    adapter: str
    """Tuned weights that recognised the segments, named by their digest; empty: untuned model."""
