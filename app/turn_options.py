"""How turns are answered: what a turn needs of the settings and of the model that is up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.host.sampling import Sampling
from app.host.wire import EngineReady
from app.option_kinds import Switch
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """How turns are answered. `recall_tokens`, the most that is recalled for one, may be less where little of the
    window is left (`recall_room.most_recalled`); 0 switches recall off."""

    model: str
    system: str
    sampling: Sampling
    recall_tokens: int
    tokenizer_file: str


def turn_options(settings: Settings, engine: EngineReady | None, tokenizer_file: Path) -> TurnOptions:
    """By the settings, with the model that is up; None while none is."""
    quota = engine.quota_tokens if engine is not None else settings.window_tokens
    return TurnOptions(
        model=engine.model_name if engine is not None else settings.model,
        system=settings.system_text(),
        sampling=settings.sampling(),
        recall_tokens=int(quota * settings.recall_share) if settings.recall is Switch.ON else 0,
        tokenizer_file=str(tokenizer_file),
    )
