"""What guessing the next tokens gains and costs on the starter model, one thread: `python -m tests.bench.guess`.

Decode speed with guesses against without, interleaved, for an answer that quotes, one that lists and one that is free.
"""

from __future__ import annotations

import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished
from engine.lookup import MOST
from engine.model.load import LoadedModel, load_model, pick_device
from engine.sampling.params import SamplingParams
from engine.types import MessageKey
from tests.bench.report import median, report
from tests.models import starter_file

ROUNDS = 5
TEXT = (
    "The harbour museum opens at nine on weekdays and at ten on Saturdays. It is closed on Mondays. The lighthouse "
    "tour costs twelve euros and lasts ninety minutes; children under eight may not climb the stairs. Tickets are sold "
    "at the blue kiosk beside the ferry landing. The last ferry leaves at 18:40."
)
QUESTIONS = {
    "quoting": f"Repeat this text word for word:\n\n{TEXT}",
    "listing": "List ten uses of a paper clip, one per line.",
    "free": "Write a short story about a lighthouse keeper and a storm.",
}


def decode_tok_s(model: LoadedModel, question: str, guess_tokens: int) -> tuple[str, float]:
    """The greedy answer, and the tokens a second at which it was decoded."""
    engine = Engine(model, EngineConfig(1024, guess_tokens=guess_tokens))
    session = engine.open_session("You are a helpful assistant.")
    engine.add_user(session, MessageKey("q"), question)
    engine.generate(session, MessageKey("a"), SamplingParams(max_tokens=100))
    while True:
        for event in engine.step():
            if isinstance(event, AnswerFinished):
                return event.text, event.new_tokens / event.decode_seconds


def main() -> None:
    """Measure, print, report."""
    torch.set_num_threads(1)
    model = load_model(starter_file(), device=pick_device("cpu"), dtype=torch.float32)
    gains: dict[str, float] = {}
    for name, question in QUESTIONS.items():
        ratios = []
        for _ in range(ROUNDS):
            plain, without = decode_tok_s(model, question, 0)
            guessed, with_guesses = decode_tok_s(model, question, MOST)
            if guessed != plain:
                raise RuntimeError(f"guessing changed the answer: {guessed!r} for {plain!r}")
            ratios.append(with_guesses / without)
        print(f"{name}, with guesses / without:", *(f"{ratio:.2f}" for ratio in ratios))
        gains[f"decode_{name}_with_guesses"] = median(ratios)
    report(**gains)


if __name__ == "__main__":
    main()
