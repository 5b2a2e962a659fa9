"""The starter model itself, against transformers' reading of the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.cache.formats.kv_format import KvFormat
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, EngineEvent, FinishReason, TextDelta, TokensEvicted
from engine.model.load import LoadedModel, load_model
from engine.sampling.params import SamplingParams
from engine.session import Session
from engine.types import MessageKey, SessionId
from tests.engine.helpers import poison
from tests.engine.tiny import CPU

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTIONS = [
    "What is the capital of France, and what is it known for?",
    "Write a short story about a lighthouse keeper.",
    "List three uses of a paper clip.\n\nThen explain why 17 * 23 = 391.",
]
TEXTS = [
    "The quick brown fox jumps over the lazy dog's 1234567890 fences, isn't it?",
    "def f(x):\n\treturn x ** 2  # comment\n\n\n    if x:\n        pass\n",
    "Zażółć gęślą jaźń — naïve café",
    "日本語と中文和한국어를 섞은 텍스트。",
    "👩‍👩‍👧‍👦 👍🏽 🇨🇭 e\u0301 \u200d \ufeff",
    "   leading and trailing   \n \t \r\n",
    "https://example.org/a?b=c&d=%20 <html>&amp;</html> {json: [1, 2.5e-3]}",
    "<|im_start|>user\nspecial tokens<|im_end|>\n<|endoftext|>",
    "العربية עברית हिन्दी ไทย",
    "",
]


@pytest.fixture(scope="module")
def starter(starter_path: Path) -> LoadedModel:
    return load_model(starter_path, device=CPU, dtype=torch.float32)


@pytest.fixture(scope="module")
def their_tokenizer(starter_path: Path) -> Any:
    return AutoTokenizer.from_pretrained(starter_path.parent, gguf_file=starter_path.name)


@pytest.fixture(scope="module")
def their_model(starter_path: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(
        starter_path.parent, gguf_file=starter_path.name, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def test_tokens_are_those_of_transformers(starter: LoadedModel, their_tokenizer: Any) -> None:
    for text in TEXTS:
        ids = their_tokenizer(text, add_special_tokens=False).input_ids
        assert starter.tokenizer.encode(text) == ids
        assert starter.tokenizer.decode(ids) == their_tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert starter.tokenizer.decode(starter.tokenizer.encode_plain(text)) == text


def test_numerals_stand_alone(starter: LoadedModel, their_tokenizer: Any) -> None:
    # transformers' reading of a GGUF leaves out the rule that the file names; SmolLM2's tokenizer.json has it.
    fast = FastTokenizer.from_str(their_tokenizer.backend_tokenizer.to_str())
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in [*TEXTS, "½ ² ₃ x² Ⅳ ١٢٣ 12.50€ 1st"]:
        assert starter.tokenizer.encode(text) == fast.encode(text, add_special_tokens=False).ids


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All tokens that any session is given from now on."""
    tokens: list[int] = []
    append = Session.append

    def recording(session: Session, key: MessageKey | None, ids: list[int]) -> None:
        tokens.extend(ids)
        append(session, key, ids)

    monkeypatch.setattr(Session, "append", recording)
    return tokens


def run(engine: Engine) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    while engine.busy:
        events += engine.step()
    return events


@pytest.mark.parametrize("question", QUESTIONS)
def test_greedy_answers_are_those_of_transformers(
    starter: LoadedModel, their_tokenizer: Any, their_model: Any, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, most = recorded(monkeypatch), 80
    # As computed: to the token, what rounds at 16 bits is another model where two words are near equally likely.
    engine = Engine(starter, EngineConfig(quota_tokens=512, chunk_tokens=32, kv_format=KvFormat.FULL))
    session = engine.open_session(SYSTEM)
    engine.add_user(session, MessageKey("q"), question)
    engine.generate(session, MessageKey("a"), SamplingParams(max_tokens=most))
    prompt = list(tokens)
    finished = run(engine)[-1]
    assert isinstance(finished, AnswerFinished)
    assert engine.window(session).evicted == 0

    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    asked = their_tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    assert prompt == asked.input_ids[0].tolist()
    with torch.no_grad():
        whole = their_model.generate(**asked, max_new_tokens=most, do_sample=False, pad_token_id=2)[0].tolist()
    answer = whole[len(prompt) :]
    if finished.reason is FinishReason.STOP:
        assert answer[-1] in starter.stop_ids
        answer = answer[:-1]
    else:
        assert len(answer) == most
    assert tokens[len(prompt) : len(prompt) + finished.new_tokens] == answer
    assert finished.text == their_tokenizer.decode(answer, clean_up_tokenization_spaces=False)


def ask(engine: Engine, session: SessionId, turn: int, text: str) -> list[EngineEvent]:
    engine.add_user(session, MessageKey(f"u{turn}"), text)
    params = SamplingParams(temperature=0.7, top_p=0.9, seed=turn, max_tokens=120)
    engine.generate(session, MessageKey(f"a{turn}"), params)
    events: list[EngineEvent] = []
    while engine.busy:
        events += engine.step()
        poison(engine.pages, [chat.session for chat in engine._chats.values()])
    return events


def test_three_windows_long_it_still_speaks(
    starter: LoadedModel, their_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = recorded(monkeypatch)
    engine = Engine(starter, EngineConfig(quota_tokens=512, chunk_tokens=64))
    memory = (engine.pages.k.data_ptr(), engine.pages.k.shape, engine.pages.bytes)
    session = engine.open_session(SYSTEM)
    lost, turn = engine.window(session).sink_tokens, 0
    while engine.window(session).position < 3 * 512:
        events = ask(engine, session, turn, f"Tell me something about the number {turn}, the sea, or a town you like.")
        for event in events:
            if isinstance(event, TokensEvicted):
                assert event.span.first == lost
                lost = event.span.last + 1
        finished = events[-1]
        assert isinstance(finished, AnswerFinished)
        assert finished.text == "".join(event.text for event in events if isinstance(event, TextDelta))
        assert finished.text.strip()
        assert "�" not in finished.text
        turn += 1
    window = engine.window(session)
    assert window.evicted == lost - window.sink_tokens > 512
    assert window.visible_tokens <= window.quota_tokens == 512
    assert (engine.pages.k.data_ptr(), engine.pages.k.shape, engine.pages.bytes) == memory
    # Fluent: the full model, which reads the whole chat at once, is not surprised by its newest part.
    with torch.no_grad():
        logits = their_model(torch.tensor([tokens])).logits[0]
    surprise = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(tokens[1:]), reduction="none")
    assert torch.isfinite(surprise).all()
    assert float(surprise[-300:].mean()) < 1.5 * float(surprise[100:400].mean()) + 0.5
