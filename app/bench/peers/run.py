"""A peer in a process of its own: `python run.py PROGRAM OPTIONS`, with PROGRAM transformers or llama.cpp and OPTIONS
a JSON object of model, threads, window, device, dtype and system. It imports nothing of ours, so that a Python that
has only the peer can run it.

One request a line, one answer a line, all JSON; an answer with "error" is the last. A chat that outgrows the window is
treated as people treat it there: the oldest messages are dropped until question and answer fit, and what is no longer
the same from the beginning is evaluated again. What is the same is never evaluated twice.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol


class Backend(Protocol):
    """A model, its tokenizer and a cache of what was evaluated."""

    name: str
    version: str

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        """Messages by the model's own template, ready for an answer."""

    def plain(self, text: str) -> list[int]:
        """The tokens of a text."""

    def keep(self, count: int) -> int:
        """Keep the first `count` tokens of the cache, or none where it cannot be cut; how many are kept."""

    def feed(self, tokens: list[int]) -> None:
        """Evaluate tokens after those in the cache, up to the scores of the next one."""


class Transformers:
    """Hugging Face transformers, with its own cache."""

    def __init__(self, options: dict[str, Any]) -> None:
        import torch
        import transformers
        from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(options["threads"])
        torch.set_grad_enabled(False)
        path = Path(options["model"])
        where: dict[str, str] = {} if path.is_dir() else {"gguf_file": path.name}
        folder = str(path if path.is_dir() else path.parent)
        self.name, self.version = "transformers", transformers.__version__
        self._torch, self._device = torch, options["device"]
        self._tokenizer = AutoTokenizer.from_pretrained(folder, **where)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, options["dtype"]), **where)
        self._model = model.eval().to(self._device)
        self._cache = DynamicCache()

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        """By `apply_chat_template`."""
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def plain(self, text: str) -> list[int]:
        """Without marks."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def keep(self, count: int) -> int:
        """Crop the cache, which takes how many to remove, below zero."""
        removed = self._cache.get_seq_length() - count
        if removed > 0:
            self._cache.crop(-removed)
        return count

    def feed(self, tokens: list[int]) -> None:
        """The scores of the last token only, as `generate` asks for them."""
        ids = self._torch.tensor([tokens], device=self._device)
        out = self._model(ids, cache=self._cache, use_cache=True, logits_to_keep=1)
        int(out.logits[0, -1].argmax())  # the token is needed before the next one: waits for a GPU


class LlamaCpp:
    """llama.cpp through llama-cpp-python."""

    def __init__(self, options: dict[str, Any]) -> None:
        import llama_cpp
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        self.name, self.version = "llama.cpp", f"llama-cpp-python {llama_cpp.__version__}"
        threads = options["threads"]
        self._llama = llama_cpp.Llama(
            options["model"],
            n_ctx=options["window"],
            n_threads=threads,
            n_threads_batch=threads,
            n_gpu_layers=0 if options["device"] == "cpu" else -1,
            verbose=False,
        )
        template = self._llama.metadata.get("tokenizer.chat_template")
        if not template:
            raise ValueError("the file has no chat template")
        bos, eos = (self._text(token) for token in (self._llama.token_bos(), self._llama.token_eos()))
        self._format = Jinja2ChatFormatter(template, eos_token=eos, bos_token=bos)

    def _text(self, token: int) -> str:
        return self._llama.detokenize([token], special=True).decode("utf-8", "replace") if token >= 0 else ""

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        """By the file's own template."""
        prompt = self._format(messages=messages).prompt
        return list(self._llama.tokenize(prompt.encode(), add_bos=False, special=True))

    def plain(self, text: str) -> list[int]:
        """Without marks."""
        return list(self._llama.tokenize(text.encode(), add_bos=False, special=False))

    def keep(self, count: int) -> int:
        """As `generate` does. Caches of layers with a native window cannot be cut."""
        kept = count if self._llama._ctx.kv_cache_seq_rm(-1, count, -1) else 0
        self._llama.n_tokens = kept  # `eval` drops what lies behind it
        return kept

    def feed(self, tokens: list[int]) -> None:
        """By `eval`, in its own batches."""
        self._llama.eval(tokens)


class Chat:
    """A chat on a backend whose context holds `window` tokens."""

    def __init__(self, backend: Backend, window: int, system: str) -> None:
        self._backend, self._window = backend, window
        self._system = [{"role": "system", "content": system}]
        self._messages: list[dict[str, str]] = []
        self._held: list[int] = []

    def speeds(self, request: dict[str, Any]) -> list[float]:
        """Tokens of a prompt, seconds to read it from nothing, seconds for each of `new` tokens after it."""
        tokens = self._backend.render([*self._system, {"role": "user", "content": request["prompt"]}])
        self._keep(0)
        began = time.perf_counter()
        self._feed(tokens)
        first = time.perf_counter()
        forced = self._backend.plain(request["answer"])[: request["new"]]
        for token in forced:
            self._feed([token])
        return [len(tokens), first - began, (time.perf_counter() - first) / len(forced)]

    def turn(self, request: dict[str, Any]) -> list[float]:
        """Tokens read for a question, seconds until the first token of its answer can be chosen, seconds for each of
        the `new` tokens that follow; the rest of the answer is evaluated untimed and stays."""
        answer = self._backend.plain(request["answer"])
        question = {"role": "user", "content": request["question"]}
        prompt = self._fitting(question, len(answer))
        same = next((n for n, pair in enumerate(zip(prompt, self._held, strict=False)) if pair[0] != pair[1]), None)
        shared = min(len(prompt) - 1, len(self._held)) if same is None else same
        shared = self._keep(shared)
        began = time.perf_counter()
        self._feed(prompt[shared:])
        first = time.perf_counter()
        new = answer[: request["new"]]
        for token in new:
            self._feed([token])
        timed = (time.perf_counter() - first) / len(new)
        if answer[len(new) :]:
            self._feed(answer[len(new) :])
        self._messages += [question, {"role": "assistant", "content": request["answer"]}]
        return [len(prompt) - shared, first - began, timed]

    def _fitting(self, question: dict[str, str], room: int) -> list[int]:
        """The newest messages whose prompt leaves room for the answer; whole exchanges go."""
        while True:
            prompt = self._backend.render([*self._system, *self._messages, question])
            if len(prompt) + room <= self._window:
                return prompt
            if not self._messages:
                raise ValueError(f"a turn of {len(prompt) + room} tokens does not fit a window of {self._window}")
            del self._messages[:2]

    def _keep(self, count: int) -> int:
        kept = self._backend.keep(count)
        del self._held[kept:]
        return kept

    def _feed(self, tokens: list[int]) -> None:
        self._backend.feed(tokens)
        self._held += tokens


BACKENDS: dict[str, type[Transformers] | type[LlamaCpp]] = {"transformers": Transformers, "llama.cpp": LlamaCpp}


def main(program: str, options: dict[str, Any]) -> None:
    """Load, then answer until the input ends. What goes wrong is told in one line."""
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print what they like there

    def tell(value: object) -> None:
        told.write(json.dumps(value) + "\n")
        told.flush()

    try:
        backend = BACKENDS[program](options)
        chat = Chat(backend, options["window"], options["system"])
        tell({"name": backend.name, "version": backend.version})
        for line in sys.stdin:
            request = json.loads(line)
            tell(chat.turn(request) if "question" in request else chat.speeds(request))
    except Exception as error:  # a library that cannot do it fails in any way; the person gets its words
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        tell({"error": first})


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
