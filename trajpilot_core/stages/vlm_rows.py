"""Stage `vlm_rows`: answers of vision-language models -> predictions of their rows, and counts of how they parsed."""

from schemas.arrow import rows_of, table_of
from schemas.config import PipelineConfig
from schemas.results import Prediction
from schemas.vlm import CompletedVlm, EndpointScore, VlmAnswer, VlmConfig, VlmCount, VlmServer
from trajpilot_core.encoders.text.registry import encoder_files
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.stages import vlm

ENTRY = "vlm_predictions"
VERSION = 2  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> CompletedVlm:
    """Return the settings of the stage `vlm` without its server, which has no effect here."""
    return vlm.completed(config).replace(server=VlmServer())


def sources(inputs: Inputs, cfg: CompletedVlm, data_root: str) -> list[Source]:
    """Return the local files of the text encoder, which maps answers outside the bank."""
    return [Source("", encoder_files(cfg.text))]


def run(work: Work[CompletedVlm]) -> None:
    """Parse every answer, map its labels to the bank, and write predictions, counts and the recogniser's table."""
    from trajpilot_core.vlm.parsing import load_projection
    from trajpilot_core.vlm.score import Truth, counts_of, endpoint_scores, predictions_of_answers, read_answers

    bank = load_projection(work.inputs, work.config.text, work.runtime.device)
    answers = rows_of(VlmAnswer, work.inputs.table("vlm_answers"))
    segments = work.inputs.table("segments", ["segment_id", "label_id"])
    windows = work.inputs.table("windows", ["window_id", "segment_ids"])
    truth = Truth(
        dict(zip(segments["segment_id"].to_pylist(), segments["label_id"].to_pylist(), strict=True)),
        dict(zip(windows["window_id"].to_pylist(), windows["segment_ids"].to_pylist(), strict=True)),
    )
    parsed = read_answers(answers, bank)
    predicted = list(predictions_of_answers(parsed, truth, bank, work.config.seeds))
    work.sink.table(ENTRY, table_of(Prediction, predicted))
    work.sink.table("vlm_counts", table_of(VlmCount, counts_of(parsed, bank)))
    work.sink.table("endpoint_cache", table_of(EndpointScore, endpoint_scores(parsed, truth, bank)))
    work.sink.count(len(answers), len(answers))


STAGE = Stage(
    name="vlm_rows",
    reads=("vlm_answers", "segments", "windows", "text_bank"),
    writes=(ENTRY, "vlm_counts", "endpoint_cache"),
    config=VlmConfig,
    run=run,
    version=VERSION,
    summary="What vision-language models wrote -> predictions of their rows, failures included, and how it was read",
    completed=completed,
    sources=sources,
    pure_sources=True,
)
