"""Equal parameters of deployments are described once, and as Prefect describes them."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities import callables
from prefect.utilities.callables import ParameterSchema, parameter_schema

from deployments.declared import once, prefect_file


class Counted:
    """Prefect's own description, counted."""

    def __init__(self) -> None:
        self.describe, self.calls = callables.generate_parameter_schema, 0

    def __call__(self, signature: inspect.Signature, docstrings: dict[str, str]) -> ParameterSchema:
        self.calls += 1
        return self.describe(signature, docstrings)


@pytest.mark.slow
def test_all_deployments_need_seven_descriptions(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    """Of `predict`, the claims and all else: as it is deployed, and as the flow that it runs; and of groups."""
    counted = Counted()
    monkeypatch.setattr(callables, "generate_parameter_schema", once(counted))
    monkeypatch.chdir(checkout)
    items = prefect_file()["deployments"]
    for item in items:
        parameter_schema(load_flow_from_entrypoint(item["entrypoint"]))  # as `prefect deploy` does
    assert len(items) > 30
    assert counted.calls <= 7


def described(default: int, text: str) -> Callable[..., None]:
    def function(n: int = default) -> None: ...

    function.__doc__ = f"Do it.\n\nArgs:\n    n: {text}\n"
    return function


def test_a_description_is_prefects_own_and_nobody_changes_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [described(1, "a"), described(1, "a"), described(2, "a"), described(1, "b")]
    wanted = [parameter_schema(function) for function in functions]
    counted = Counted()
    monkeypatch.setattr(callables, "generate_parameter_schema", once(counted))
    parameter_schema(functions[0]).properties.clear()
    assert [parameter_schema(function) for function in functions] == wanted
    assert len({str(one) for one in wanted}) == counted.calls == 3
