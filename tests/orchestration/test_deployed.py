"""What is deployed: parameters as forms, recipes, pools, the automation. Needs no server."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import pytest
from checkout import CHECKOUT
from jsonschema.exceptions import best_match
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities import callables
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import validate

from deployments.declared import once, prefect_file
from deployments.deploy import crash_automations
from deployments.recipes import RECIPES, over, recipe
from deployments.recipes.paper import keystep
from deployments.recipes.simulated import demo, soak
from deployments.settings import ALWAYS
from flows.stages import features
from schemas.config import PipelineConfig, RecipeName, RunOptions
from tasks.group_runs import group_deployment
from trajpilot_core.errors import InputError
from trajpilot_core.stages import EVERY_STAGE

HEARTBEAT_S = 30
"""Of a deployed run, as prefect.yaml states it: the shortest interval that Prefect allows."""
WITH_LOGIN = ("s3://AKIA:word@bucket/x", "s3://word@bucket", "https://h/x?X-Amz-Signature=word")


@pytest.fixture(scope="module")
def form() -> dict[str, Any]:
    """The schema of which the UI makes its form, and by which the server checks parameters."""
    from deployments.deployed import full_pipeline

    return parameter_schema(full_pipeline).model_dump()


@pytest.fixture(scope="module")
def declared() -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in prefect_file(PipelineConfig())["deployments"]}


def test_every_group_and_field_of_the_form_has_a_title_a_place_and_a_description(form: dict[str, Any]) -> None:
    assert (list(form["properties"]), form["required"]) == (["config", "run"], [])
    groups = form["definitions"]
    assert groups["IngestConfig"]["title"] == "Ingest"
    assert groups["RunOptions"]["title"] == "Run options"
    for name, group in groups.items():
        assert group["title"]
        assert group["description"], name
        places = [field["position"] for field in group["properties"].values()]
        assert places == list(range(len(places))), name
        for field, schema in group["properties"].items():
            assert "$ref" in schema or schema["title"] == field, (name, field)
            group_of_its_own = "Config" in json.dumps(schema)
            assert group_of_its_own or schema["description"], (name, field)


def test_choices_are_drop_downs_and_numbers_have_bounds(form: dict[str, Any]) -> None:
    run = form["definitions"]["RunOptions"]["properties"]
    assert run["recipe"]["enum"] == list(get_args(RecipeName)) == list(RECIPES)
    assert {stage.section for stage in EVERY_STAGE.values()} == set(PipelineConfig.model_fields)
    assert run["only"]["items"]["enum"] == run["force"]["items"]["enum"] == list(EVERY_STAGE)
    assert {"type": "string", "enum": list(EVERY_STAGE)} in run["from_stage"]["anyOf"]
    features = form["definitions"]["FeatureConfig"]["properties"]
    assert features["resize"]["enum"] == ["swscale", "antialiased", "centre_crop"]
    assert (features["size_px"]["minimum"], features["size_px"]["multipleOf"]) == (32, 16)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"config": {"features": {"size_px": 17}}}, "config.features.size_px"),
    ({"config": {"features": {"resize": "round"}}}, "config.features.resize"),
    ({"config": {"features": {"size": 64}}}, "config.features"),
    ({"config": {"ingest": {"corpus": "mine"}}}, "config.ingest.corpus"),
    ({"config": {"alignment": {"train": {"lr": -1}}}}, "config.alignment.train.lr"),
    ({"run": {"recipe": "soup"}}, "run.recipe"),
    ({"run": {"device": "mps"}}, "run.device"),
    ({"run": {"only": ["cooking"]}}, "run.only[0]"),
    ({"run": {"checkpoint_s": -1}}, "run.checkpoint_s"),
    ({"run": {"from_stage": "cooking"}}, "run.from_stage"),
    ({"config": {"predictor": {"depth": 3}}}, "config.predictor"),
    ({"run": {"force": ["cooking"]}}, "run.force[0]"),
    ({"run": {"workers": 1.5}}, "run.workers"),
    *(({"run": {name: one}}, f"run.{name}") for name in ("data_root", "root") for one in WITH_LOGIN),
]


def test_recipes_and_plugins_are_accepted_and_a_wrong_value_is_refused_by_the_name_of_its_field(
    form: dict[str, Any],
) -> None:
    """By the function with which the server does it."""
    wrong = {name: validate({"config": recipe(name).model_dump(mode="json")}, form) for name in RECIPES}
    assert {name: faults for name, faults in wrong.items() if faults} == {}
    assert [best_match(validate(parameters, form)).json_path for parameters, _ in WRONG] == [
        f"$.{field}" for _, field in WRONG
    ]
    plugins = {"plugin_rows": ["plugin:mine"], "plugin_metrics": ["plugin:mine"]}
    named = {"ingest": {"corpus": "plugin:mine"}, "features": {"model": "plugin:mine"}, "evaluation": plugins}
    assert validate({"config": named | {"text_bank": {"encoder": "plugin:mine"}}}, form) == []


def test_what_is_stated_in_part_stands_over_the_recipe() -> None:
    """Also where the form was filled in beforehand, and a setting that is not written at its default."""
    blank, base = PipelineConfig(), demo()
    stated = PipelineConfig.model_validate({"alignment": {"train": {"epochs": 3}}, "features": {"size_px": 384}})
    changed = base.replace(
        features=base.features.replace(size_px=384),
        alignment=base.alignment.replace(train=base.alignment.train.replace(epochs=3)),
    )
    assert over(base, stated, prefill=blank) == changed
    touched = blank.model_dump(mode="json")
    touched["scorer"] |= {"candidates": 7, "ablations": []}
    changed = base.replace(scorer=base.scorer.replace(candidates=7, ablations=()))
    assert over(base, PipelineConfig.model_validate(touched), prefill=blank) == changed
    kitchens = recipe("epic_kitchens")
    assert kitchens.features.ahead_tubelets == 4
    stated = PipelineConfig.model_validate({"features": {"ahead_tubelets": None}})
    assert over(kitchens, stated, prefill=kitchens).features == kitchens.features.replace(ahead_tubelets=None)
    assert over(demo(), blank, prefill=blank) == demo()
    assert over(keystep(), soak(), prefill=soak()) == keystep(), "as it is passed where nobody touched the form"
    place = RunOptions(root="/artifacts", data_root="/data", recipe="demo")
    assert over(place, RunOptions.model_validate({"only": ["features"]})) == place.replace(only=("features",))


def test_every_stage_is_deployed_under_its_own_name_on_the_pool_that_fits_it(declared: dict[str, Any]) -> None:
    pools = {name: item["work_pool"]["name"] for name, item in declared.items()}
    others = [pools.pop(name) for name in ("full-pipeline", "predict")]
    assert others == ["trajpilot-gpu", "trajpilot-cpu"]
    wanted = {}
    for stage in EVERY_STAGE.values():
        deployed, on_gpu = stage.name.replace("_", "-"), "trajpilot-gpu" if stage.uses_gpu else "trajpilot-cpu"
        wanted[deployed] = on_gpu
        if callable(stage.uses_gpu):
            wanted[deployed] = "trajpilot-cpu" if stage.name == "trajectories" else "trajpilot-gpu"
        if stage.is_shared_out:
            wanted[f"{deployed}-group"] = "trajpilot-cpu" if callable(stage.uses_gpu) else on_gpu
        if stage.video_s is not None and callable(stage.uses_gpu):
            wanted[f"{deployed}-gpu-group"] = "trajpilot-gpu"
    assert pools == wanted
    assert {item["work_pool"]["work_queue_name"] for item in declared.values()} == {"default"}


def test_poses_texts_and_features_are_computed_where_their_source_and_encoder_can_be(declared: dict[str, Any]) -> None:
    pools = {
        name: {item["name"]: item["work_pool"]["name"] for item in prefect_file(recipe(name))["deployments"]}
        for name in RECIPES
    }

    def on(pool: str, stage: str) -> set[str]:
        return {name for name in RECIPES if pools[name][stage] == pool}

    benchmarks = {"demo_closed", "demo_anticipation", "demo_keystep", "demo_goalstep", "demo_egoper"}
    benchmarks |= {"demo_epic_kitchens", "demo_basketball", "demo_poses", "demo_latent"}
    kitchens = {"epic_kitchens", "epic_kitchens_patches"}
    assert on("trajpilot-gpu", "trajectories") == {"keystep", "goalstep", "egoper", *kitchens}
    assert on("trajpilot-cpu", "text-bank") == {"demo", "demo_planners", "soak", "laptop", *benchmarks}
    assert on("trajpilot-cpu", "features") == {"laptop"}
    for source, wanted in (("aria", "trajpilot-cpu"), ("odometry", "trajpilot-cpu"), ("pi3", "trajpilot-gpu")):
        name = group_deployment(EVERY_STAGE["trajectories"], PipelineConfig().trajectories.replace(source=source))
        assert declared[name]["work_pool"]["name"] == wanted, source
    for released, wanted in (("encoded", "trajpilot-gpu"), ("released", "trajpilot-cpu")):
        name = group_deployment(EVERY_STAGE["features"], PipelineConfig().features.replace(source=released))
        assert declared[name]["work_pool"]["name"] == wanted, released


def test_the_schedule_is_off(declared: dict[str, Any]) -> None:
    assert [s["active"] for item in declared.values() for s in item.get("schedules", [])] == [False]


def test_a_deployed_run_keeps_no_result_and_a_silent_one_is_crashed_after_several_heartbeats_within_five_minutes(
    declared: dict[str, Any],
) -> None:
    for automation in crash_automations():
        within = automation.trigger.within  # type: ignore[union-attr]
        assert timedelta(seconds=3 * HEARTBEAT_S) < within < timedelta(seconds=300 - HEARTBEAT_S), automation.name
    names = ("PREFECT_RESULTS_PERSIST_BY_DEFAULT", "PREFECT_RESULTS_DEFAULT_SERIALIZER", "PREFECT_LOCAL_STORAGE_PATH")
    stated = {name: ALWAYS[name] for name in names} | {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S)}
    for item in declared.values():
        assert item["work_pool"]["job_variables"]["env"].items() >= stated.items()


def test_the_flow_of_one_stage_refuses_to_be_asked_for_others() -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"force": ["featurs"]}, "this run has no featurs; its stages are ingest, "),
        ({"only": ["scorer"]}, "this flow runs features alone, not scorer"),
        ({"from_stage": "scorer"}, "exclude each other"),
        ({"force": ["scorer"]}, "this run includes only features"),
    ]
    for asked, said in refusals:
        with pytest.raises(InputError, match=said):
            features.fn(PipelineConfig(), RunOptions.model_validate(asked))


def test_a_deployed_run_of_a_stage_that_its_corpus_lacks_ends_before_anything_is_written(tmp_path: Path) -> None:
    from deployments.deployed import full_pipeline, predictor

    asked: list[tuple[Any, dict[str, Any]]] = [(predictor, {}), (full_pipeline, {"only": ["ingest", "predictor"]})]
    for flow, stages in (*asked, (full_pipeline, {"from_stage": "predictor"})):
        with pytest.raises(InputError, match="this run has no predictor; its stages are ingest"):
            flow.fn(run=RunOptions.model_validate({"recipe": "basketball", "root": str(tmp_path), **stages}))
    assert not list(tmp_path.iterdir())


def test_a_deployed_run_is_announced_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    from deployments import deployed

    remembered: list[str] = []
    monkeypatch.setattr(deployed, "remember_run", lambda *_: remembered.append("run"))
    monkeypatch.setattr(deployed, "announce", lambda *_: remembered.append("said"))
    monkeypatch.setattr(deployed, "mark_tasks_of_crashed_runs", lambda: None)  # asks a server
    monkeypatch.setattr(deployed.pipeline.full_pipeline, "fn", lambda *_: {})
    deployed.__getattr__.__wrapped__("full_pipeline").fn()
    assert remembered == ["said", "run"]


@pytest.mark.slow
def test_each_entrypoint_is_the_flow_that_is_deployed_and_all_need_seven_descriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of `predict` and of all else, each as it is deployed and as the flow that it runs; and of groups."""
    counted = Mock(wraps=callables.generate_parameter_schema)
    monkeypatch.setattr(callables, "generate_parameter_schema", once(counted))
    monkeypatch.chdir(CHECKOUT)
    items = prefect_file(PipelineConfig())["deployments"]
    for item in items:
        flow = load_flow_from_entrypoint(item["entrypoint"])
        parameter_schema(flow)  # as `prefect deploy` does
        assert flow.name == item["name"]
    assert len(items) > 30
    assert counted.call_count <= 7


def described(default: int, text: str) -> Callable[..., None]:
    def function(n: int = default) -> None: ...

    function.__doc__ = f"Do it.\n\nArgs:\n    n: {text}\n"
    return function


def test_a_description_is_prefects_own_and_nobody_changes_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [described(1, "a"), described(1, "a"), described(2, "a"), described(1, "b")]
    wanted = [parameter_schema(function) for function in functions]
    counted = Mock(wraps=callables.generate_parameter_schema)
    monkeypatch.setattr(callables, "generate_parameter_schema", once(counted))
    parameter_schema(functions[0]).properties.clear()
    assert [parameter_schema(function) for function in functions] == wanted
    assert len({str(one) for one in wanted}) == counted.call_count == 3
