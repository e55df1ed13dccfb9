"""What the form of a deployed run offers: the stages of this checkout as drop-downs."""

from typing import Annotated

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from schemas.config import RunOptions
from trajpilot_core.stages import EVERY_STAGE


class StageChoices:
    """Marks a parameter of type RunOptions: where it asks for a stage, its form offers those of the list."""

    @staticmethod
    def __get_pydantic_json_schema__(core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Put the names of the stages into the JSON schema of RunOptions; the server checks parameters by it, too."""
        schema = handler(core_schema)
        fields = handler.resolve_ref_schema(schema)["properties"]
        one = {"type": "string", "enum": list(EVERY_STAGE)}
        for name in ("only", "force"):
            fields[name]["items"] = one
        fields["from_stage"]["anyOf"] = [one, {"type": "null"}]
        return schema


AskedRun = Annotated[RunOptions, StageChoices]
"""Options of a deployed run."""
