"""Prefect's own command, except that equal parameters are described once: `python -m deployments.described deploy ...`.

Prefect describes the parameters of a flow as a JSON schema three times when it loads the flow (each parameter alone,
then all together) and three times more when it deploys it. Nearly all deployments have the same parameters, with a
thousand settings in them.
"""

from collections.abc import Callable
from inspect import Parameter, Signature

from prefect.utilities import callables
from prefect.utilities.callables import ParameterSchema

Describe = Callable[[Signature, dict[str, str]], ParameterSchema]


def once(describe: Describe) -> Describe:
    """Return a function that describes as `describe` does, equal parameters once."""
    known: list[tuple[list[Parameter], dict[str, str], ParameterSchema]] = []

    def described(signature: Signature, docstrings: dict[str, str]) -> ParameterSchema:
        """Return a copy of the description of these parameters: Prefect may change what it gets."""
        asked = list(signature.parameters.values())
        for parameters, texts, schema in known:
            if parameters == asked and texts == docstrings:
                return schema.model_copy(deep=True)
        known.append((asked, docstrings, describe(signature, docstrings)))
        return known[-1][2].model_copy(deep=True)

    return described


if __name__ == "__main__":
    callables.generate_parameter_schema = once(callables.generate_parameter_schema)  # type: ignore[assignment]
    from prefect.cli import app

    app()
