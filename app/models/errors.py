"""What can go wrong with a model before it is loaded."""

from __future__ import annotations

from app.errors import PersonError


class ModelError(PersonError):
    """One sentence for the person: what was wrong with the model and what to do."""


class FetchError(ModelError):
    """A model could not be fetched; nothing half-fetched is in its place, and trying again is safe."""
