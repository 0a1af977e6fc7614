"""Validate tables of hosts.toml: a Pydantic model for each, made of the table's own annotations."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_type_hints

import pydantic
from pydantic import BaseModel, ConfigDict, create_model, model_validator

from tfdeploy.config import models, types
from tfdeploy.config.models import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T", bound=Table)
NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
TABLES: tuple[type[Table], ...] = (
    models.Source, models.DataSet, models.PythonEnvironment, models.JobTraining, models.Training,
    models.RestartSettings, models.Restart, models.Notify, models.Trials, models.HostSettings,
    models.Host, models.HostsFile,
)  # fmt: skip


@contextmanager
def _without_plugins() -> Iterator[None]:
    """Build models without plugins for Pydantic, as Typer builds its own: to find the plugins,
    Pydantic opens a file of each package that is installed."""
    before = os.environ.get(NO_PLUGINS)
    os.environ[NO_PLUGINS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[NO_PLUGINS]
        else:
            os.environ[NO_PLUGINS] = before


with _without_plugins():

    class _Model(BaseModel):
        """A table, as a user wrote it. It refuses unknown keys and converts no types."""

        model_config = ConfigDict(extra="forbid", strict=True)
        TABLE: ClassVar[type[Table]]

        def to_table(self) -> Table:
            values = {key: _to_table(getattr(self, key)) for key in self.TABLE.key_names()}
            return self.TABLE(given=frozenset(self.model_fields_set), **values)

        @model_validator(mode="after")
        def _check(self) -> _Model:
            if self.TABLE.check is not Table.check:
                self.to_table().check()
            return self


def _to_table(value: Any) -> Any:
    if isinstance(value, _Model):
        return value.to_table()
    if isinstance(value, dict):
        return {key: _to_table(item) for key, item in value.items()}
    return value


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return pydantic.Field(default_factory=field.default_factory)
    return ... if field.default is MISSING else field.default


def _build(tables: tuple[type[Table], ...]) -> dict[type[Table], type[_Model]]:
    names: dict[str, Any] = {
        **vars(types), "Annotated": Annotated, "Any": Any, "ClassVar": ClassVar,
        "Field": pydantic.Field, "Literal": Literal, "Mapping": dict, "Table": Table,
    }  # fmt: skip
    built = {}
    for table in tables:
        hints = get_type_hints(table, names, include_extras=True)
        settings = {each.name: (hints[each.name], _default(each)) for each in fields(table)}
        del settings["given"]
        model = create_model(table.__name__, __base__=_Model, **settings)  # type: ignore[call-overload]
        model.TABLE = table
        built[table] = names[table.__name__] = model
    return built


with _without_plugins():
    MODELS = _build(TABLES)


def validate(table: type[T], values: Any) -> T:
    """Return a table of what the user wrote. Raises pydantic's ValidationError."""
    read: Any = MODELS[table].model_validate(values).to_table()
    valid: T = read
    return valid
