"""Classes in place of labels: what is scored changes, what models read does not."""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
import torch
from planning_fixture import SCORER, model_files, planning_data
from rows_fixture import predicted, scorers_of

from trajpilot_core.data.chains import chains_of
from trajpilot_core.data.planning import in_classes
from trajpilot_core.errors import LeakError, StoreError
from trajpilot_core.methods import METHODS, method
from trajpilot_core.methods.base import Answers
from trajpilot_core.methods.batch import WindowBatch
from trajpilot_core.retrieval.bank import build_bank, chain_view
from trajpilot_core.retrieval.candidates import find_candidates
from trajpilot_core.training.scorer import queries_of


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    data = planning_data()
    files = model_files(data, seeds=(0,))
    config = SCORER.replace(ablations=(), train=SCORER.train.replace(epochs=1))
    scorers = scorers_of(data, files, tmp_path_factory.mktemp("scorers"), config, threshold=0.5)
    return data, files, scorers, predicted(data, files, scorers)


@pytest.fixture(scope="module")
def merged(made):
    """Labels merged two by two: the map, the data, and what is predicted."""
    data, files, scorers, _ = made
    class_of = {label: f"l{int(label[1:]) // 2 * 2:02d}" for label in data.label_ids}
    own = in_classes(data, class_table(class_of))
    return class_of, own, predicted(own, files, scorers)


def class_table(class_of: Mapping[str, str]) -> pa.Table:
    return pa.table({"label_id": list(class_of), "class_id": list(class_of.values())})


def test_labels_become_the_codes_of_their_classes_and_rows_answer_with_classes_alone(made, merged) -> None:
    data, (class_of, own, (table, headroom, _)) = made[0], merged
    said = {name for column in ("label_id", "decoded_id") for name in table[column].to_pylist()}
    assert said | {name for names in table["top_ids"].to_pylist() for name in names} <= set(class_of.values())
    assert headroom.num_rows
    assert set(own.label_ids) == set(class_of.values())
    answers = [own.label_ids[i] for i in own.labels.tolist()]
    assert answers == [class_of[data.label_ids[i]] for i in data.labels.tolist()]
    for name, vector in zip(own.label_ids, own.bank, strict=True):
        assert torch.equal(vector, data.bank[data.label_ids.index(name)])
    assert torch.equal(own.read_labels, data.labels)
    assert torch.equal(own.read_bank, data.bank)
    assert torch.equal(data.read_labels, data.labels), "over labels they are the same"


def test_a_label_without_a_class_and_a_class_without_a_text_of_its_own_are_refused(made) -> None:
    data, own = made[0], {label: label for label in made[0].label_ids}
    first, second, third, *_ = own
    absent = {label: of for label, of in own.items() if label != first}
    for class_of in (absent, dict.fromkeys(own, "walk"), {**own, first: second, second: third}):
        with pytest.raises(StoreError, match="is in no class of label_classes; run ingest again"):
            in_classes(data, class_table(class_of))


def test_classes_that_merge_nothing_give_the_same_predictions(made) -> None:
    data, files, scorers, (before, _, _) = made
    own = in_classes(data, class_table({label: label for label in data.label_ids}))
    after, _, _ = predicted(own, files, scorers)
    assert after.equals(before)


def test_what_the_scorer_reads_of_candidates_does_not_depend_on_the_answers(made, merged) -> None:
    """The planted fault: the same queries with classes as the labels that models read."""
    (data, files, _, _), own = made, merged[1]
    wrong = replace(own, own_labels=None, own_bank=None, class_of=None)
    rows = (data.windows[4].split == 2).nonzero()[:, 0][:6]
    found = []
    for one in (data, own, wrong):
        view = chain_view(one, files, chains_of(one)[0], 0, "cpu")
        queries = queries_of(view, find_candidates(view, build_bank(view, 4, "action"), rows, SCORER), SCORER)
        found.append((queries.texts[queries.label], queries.plans, queries.fallback))
    assert all(torch.equal(a, b) for a, b in zip(*found[:2], strict=True))
    assert not torch.equal(found[0][0], found[2][0])


def test_a_row_that_reads_the_labels_behind_the_classes_of_its_own_window_is_refused(made) -> None:
    """The planted fault: the original labels of the middles, which no row may see, as answers."""
    data, files, scorers, _ = made
    own = in_classes(data, class_table({label: label for label in data.label_ids}))

    def by_own_labels(batch: WindowBatch) -> Answers:
        truth = batch.view.data.read_labels[batch.segments]
        return Answers(truth[..., None], torch.ones(*truth.shape, 1))

    liar = replace(method("no_traj"), id="toy", name="Toy", role="control", answer=by_own_labels, plans=None)
    METHODS.append(liar)
    try:
        with pytest.raises(LeakError, match="'Toy' declares that it sees 'ends'"):
            predicted(own, files, scorers)
    finally:
        METHODS.remove(liar)
