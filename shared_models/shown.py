"""What all models of replies have in common: they take what comes and give it back as it came."""

from typing import Any, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Shown(BaseModel):
    """Lenient: further keys are kept, and null (Go's empty list or map) is the default.

    `model_dump(mode="json")` gives back the reply: the keys that were sent, in their order, with null where
    null was, whether the model knows them or not; and what was set since.
    """

    # A slot, not a private attribute: those cost three times as much as all else for a small model.
    __slots__ = ("_sent",)

    # Built at first use: a command needs few of the models.
    model_config = ConfigDict(extra="allow", defer_build=True)

    @model_validator(mode="wrap")
    @classmethod
    def _take(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        values = data.values()
        known = {k: v for k, v in data.items() if v is not None} if None in values else data
        shown = handler(known)
        object.__setattr__(shown, "_sent", data)
        return shown

    @model_serializer(mode="wrap")
    def _give_back(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        now: dict[str, Any] = handler(self)
        sent: dict[str, Any] | None = getattr(self, "_sent", None)
        if sent is None:  # made here, or a copy
            return now
        back = {}
        for key, was in sent.items():
            if key in now:
                value = now.pop(key)
                same = value == was or (was is None and key not in self.model_fields_set)
                back[key] = was if same else value
            elif was is None and key not in type(self).model_fields:
                back[key] = None
        return back | {key: value for key, value in now.items() if key in self.model_fields_set}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema of the fields: the serializer changes nothing that a schema says."""
        model = core_schema.get("schema", {})
        fields = {k: v for k, v in model.items() if k != "serialization"}
        return handler(cast("CoreSchema", {**core_schema, "schema": fields}))
