"""What all sections of a config share."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen, strict about types and names; a user's own method may check its settings with one of these, too."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
