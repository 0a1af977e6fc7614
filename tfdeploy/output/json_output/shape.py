"""A shape is a dataclass whose fields are the keys of a JSON object.

The JSON Schemas in docs/schemas/, and the tables of docs/json.md, are made from the shapes: their
annotations are the types, and the text below a field says what it means.
"""

from __future__ import annotations

from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self


class Shape:
    """The base class of all shapes."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    # What pydantic needs to know to make a schema. No command imports pydantic for it.
    __pydantic_config__: ClassVar[dict[str, bool]] = {
        "use_attribute_docstrings": True,
        "json_schema_serialization_defaults_required": True,
    }

    @classmethod
    def of(cls, source: object, **others: object) -> Self:
        """Return the shape of an object: a field that is not among `others` is its attribute."""
        names = [field.name for field in fields(cls)]
        return cls(**{n: others[n] if n in others else getattr(source, n) for n in names})
