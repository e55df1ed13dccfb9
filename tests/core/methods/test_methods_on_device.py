"""Every row of the tables is predicted on a pretended accelerator, with the answers of the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from planning_fixture import SCORER, model_files, planning_data
from pretend_device import pretend_cuda
from rows_fixture import predicted, scorers_of

NUMBERS = ["top_scores", "gate"]


def numbers(table: pa.Table) -> list[np.ndarray[Any, Any]]:
    """Scores of the best answers, probabilities of the gate."""
    return [table["top_scores"].combine_chunks().flatten().to_numpy(), table["gate"].fill_null(-1.0).to_numpy()]


def test_rows_on_a_device_answer_as_on_the_cpu(tmp_path: Path) -> None:
    data = planning_data()
    files = model_files(data)
    config = SCORER.replace(train=SCORER.train.replace(epochs=1))
    scorers = scorers_of(data, files, tmp_path, config, threshold=0.5)
    here = predicted(data, files, scorers)
    with pretend_cuda() as stalls:
        there = predicted(data.to("cuda"), files, scorers, "cuda")
        assert stalls
    for one, other in zip(numbers(here[0]), numbers(there[0]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert here[0].drop(NUMBERS).equals(there[0].drop(NUMBERS))
    assert here[1:] == there[1:]
