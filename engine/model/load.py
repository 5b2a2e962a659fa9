"""A model from disk, ready to run: decoder, tokenizer, chat template, stop ids."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from engine.model.config import ModelConfig
from engine.model.decoder import Decoder
from engine.model.linear import WeightForm
from engine.model.weights.assemble import Outline, TensorNames, TensorSource, assemble
from engine.model.weights.folder import ModelFolder, read_json
from engine.model.weights.gguf import GgufFile
from engine.model.weights.keep import Counter, Keeper
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer, from_folder, from_gguf
from engine.types import EngineError, ModelFileError
from kernels.cpu.compiled import KEPT
from kernels.cpu.ready import compile_in_background, compiling, on_disk
from kernels.runtime import serves

# End-of-turn tokens that checkpoints' generation configs leave out now and then (llama3 #224: talks for ever).
_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>", "</s>")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """All that the engine needs of a model."""

    config: ModelConfig
    decoder: Decoder
    tokenizer: Tokenizer
    template: ChatTemplate
    stop_ids: frozenset[int]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model whose file has been read but for its weights."""

    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate
    stop_ids: frozenset[int]
    keeper: Keeper
    source: TensorSource
    names: TensorNames
    smaller: Keeper | None = None
    """What holds the weights as the file does, where `keeper` has them in full only because the kernels that would
    read those are not compiled yet."""

    def weights_bytes(self) -> int:
        """Bytes that the weights will take, from their shapes alone.

        Raises ModelFileError or UnsupportedModelError when a weight is missing, misshapen or of an unknown type.
        """
        counter = Counter(self.keeper.device, self.keeper.dtype, self.keeper.form)
        assemble(Outline(self.source, self.keeper.dtype), self.names, self.config, counter, lambda _done: None)
        return counter.bytes

    def load(self, on_layer: Callable[[int, int], None] = lambda _done, _total: None) -> LoadedModel:
        """Read the weights; `on_layer(done, total)` reports progress. Raises what `weights_bytes` does."""

        def read(done: int) -> None:
            _give_back_what_was_freed()
            on_layer(done, self.config.layers)

        weights = assemble(self.source, self.names, self.config, self.keeper, read)
        decoder = Decoder(self.config, weights)
        text, device = (self.tokenizer, self.template, self.stop_ids), self.keeper.device
        return LoadedModel(self.config, decoder, *text, self.keeper.dtype, device)


def pick_device(name: str) -> torch.device:
    """ "auto", "cpu" or "cuda". Raises EngineError when CUDA is asked for and not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise EngineError(f"device '{name}' is not known; take auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise EngineError("device 'cuda' was asked for, but torch sees no NVIDIA GPU; use --device cpu")
    return torch.device(name)


def pick_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on a GPU, float32 on a CPU (whose bfloat16 products are slow without AMX)."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def open_model(
    path: Path, *, device: torch.device, dtype: torch.dtype, form: WeightForm | None = WeightForm.FULL
) -> OpenedModel:
    """Open one GGUF file or a Hugging Face folder, whose weights will run in `dtype` and be held in `form`.

    None holds them as the file does where the kernels read that (Q4_1, Q8_0), else in full: the same weights, and
    products that are the same but for rounding. On a CPU where the kernels are not compiled yet that begins in the
    background, and the weights are held in full this once: without kernels a token would have to unpack all of them.

    Raises ModelFileError or UnsupportedModelError with a sentence that names the file's own values.
    """
    if path.is_dir():
        return _from_folder(path, Keeper(device, dtype, form or WeightForm.FULL))
    if path.suffix.lower() == ".gguf":
        file = GgufFile(path)
        if form is not None:
            return _from_gguf(file, Keeper(device, dtype, form))
        best, now = _own_forms(file, device, dtype)
        opened = _from_gguf(file, Keeper(device, dtype, now))
        return opened if best is now else replace(opened, smaller=Keeper(device, dtype, best))
    raise ModelFileError(f"{path} is neither a .gguf file nor a model folder")


def load_model(
    path: Path,
    *,
    device: torch.device,
    dtype: torch.dtype,
    form: WeightForm | None = WeightForm.FULL,
    on_layer: Callable[[int, int], None] = lambda _done, _total: None,
) -> LoadedModel:
    """`open_model` and `OpenedModel.load` in one."""
    return open_model(path, device=device, dtype=dtype, form=form).load(on_layer)


def kernels_compiling() -> bool:
    """True while the CPU's kernels are compiled, as once on every machine. It decides what `open_model` makes of a form
    of None, and weights in 8 or 4 bits are unpacked for every product meanwhile."""
    return compiling()


def _own_forms(file: GgufFile, device: torch.device, dtype: torch.dtype) -> tuple[WeightForm, WeightForm]:
    """The form to hold a file's weights in, and the one that is better until kernels are compiled."""
    form = file.form()
    if form is WeightForm.FULL or serves(device):
        return form, form
    if device.type != "cpu" or dtype != torch.float32:
        return WeightForm.FULL, WeightForm.FULL
    if KEPT:  # else they would be compiled at every start, for the next one
        compile_in_background()
    return form, form if on_disk() else WeightForm.FULL


def _from_gguf(file: GgufFile, keeper: Keeper) -> OpenedModel:
    config, parts = file.config(), file.tokenizer()
    tokenizer = from_gguf(parts)
    template = ChatTemplate(parts.template, bos=_text(tokenizer, tokenizer.bos), eos=_text(tokenizer, tokenizer.eos))
    stops = _stop_ids(config, tokenizer, template)
    return OpenedModel(config, tokenizer, template, stops, keeper, *file.tensors(config, keeper.dtype))


def _from_folder(path: Path, keeper: Keeper) -> OpenedModel:
    folder = ModelFolder(path)
    config = folder.config()
    tokenizer = from_folder(path)
    # The tokenizer's own EOS, not the first stop id: Llama 3's generation config lists another one first.
    eos = tokenizer.eos if tokenizer.eos is not None else next(iter(config.stop_ids), None)
    template = ChatTemplate(_folder_template(path), bos=_text(tokenizer, tokenizer.bos), eos=_text(tokenizer, eos))
    stops = _stop_ids(config, tokenizer, template)
    return OpenedModel(config, tokenizer, template, stops, keeper, *folder.tensors(config, keeper.dtype))


def _give_back_what_was_freed() -> None:
    """glibc keeps what lies between allocations for its own later use: for the starter model in 4 bits, 180 MB more
    than the weights' 95 by the last layer, 25 with this."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _folder_template(path: Path) -> str | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{file} cannot be read ({error})") from error
    if not (path / "tokenizer_config.json").is_file():
        return None
    template = read_json(path / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _text(tokenizer: Tokenizer, token: int | None) -> str:
    return "" if token is None else tokenizer.token_text(token)


def _stop_ids(config: ModelConfig, tokenizer: Tokenizer, template: ChatTemplate) -> frozenset[int]:
    """Of the generation config, by the usual names, and the special token that the template ends an answer with."""
    after = (token for token in tokenizer.encode(template.answer.after) if token in tokenizer.special_ids)
    named = (tokenizer.token_id(text) for text in _END_OF_TURN)
    special = {token for token in named if token is not None and token in tokenizer.special_ids}
    return frozenset(config.stop_ids) | special | set(islice(after, 1))
