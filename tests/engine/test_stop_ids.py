"""Every token that may end an answer: by the generation config, by its usual name, by the template."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import AddedToken

from engine.engine import Engine, EngineConfig
from engine.events import AnswerFinished, FinishReason
from engine.model.load import load_model
from engine.sampling.params import SamplingParams
from engine.types import MessageKey
from tests.engine.tiny import CPU, TEMPLATE, byte_tokenizer, write_llama

TURN_END, EXTRA, USUAL = "<the_turn_is_over>", "<extra>", "<|eot_id|>"


def written(folder: Path) -> Path:
    """A model whose config names one stop id, its generation config two, and its template a fourth."""
    write_llama(folder, vocab_size=264, eos_token_id=256)
    fast = byte_tokenizer()
    fast.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in (TURN_END, EXTRA, USUAL)])
    fast.save(str(folder / "tokenizer.json"))
    template = TEMPLATE.replace("<|im_end|>", TURN_END)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "<|im_end|>"}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [256, fast.token_to_id(EXTRA)]}))
    return folder


def test_all_of_them_end_an_answer(tmp_path: Path) -> None:
    model = load_model(written(tmp_path), device=CPU, dtype=torch.float32)
    names = {model.tokenizer.token_text(token) for token in model.stop_ids}
    assert names == {"<|endoftext|>", EXTRA, TURN_END, USUAL, "<|im_end|>"}
    engine = Engine(model, EngineConfig(quota_tokens=256))
    for token in model.stop_ids:
        session = engine.open_session("s")
        engine.add_user(session, MessageKey("q"), "hello")
        # Penalties leave it alone, though every earlier turn may have ended with it.
        params = SamplingParams(logit_bias=((token, 100.0),), repetition_penalty=10, presence_penalty=2)
        engine.generate(session, MessageKey("a"), params)
        events = []
        while engine.busy:
            events += engine.step()
        assert isinstance(events[-1], AnswerFinished)
        assert (events[-1].reason, events[-1].new_tokens) == (FinishReason.STOP, 0)
        engine.close_session(session)
