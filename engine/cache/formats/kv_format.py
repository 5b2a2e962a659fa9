"""The formats by name, and what a token costs in each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch

from engine.cache.formats.integer import Int4, Int8
from engine.cache.formats.rows import SCALE_BYTES, Quantiser
from engine.cache.formats.turbo import Turbo3
from engine.types import UnsupportedModelError

_DIVIDES_HEAD = 8  # values of a row that share a byte of Turbo3's high plane


class KvFormat(StrEnum):
    """How full pages are kept: `auto` in 16 bits a value, `full` in the type that the model runs in; the others are
    quantised."""

    AUTO = "auto"
    FULL = "full"
    INT8 = "int8"
    K8V4 = "k8v4"
    INT4 = "int4"
    TQ3 = "tq3"


@dataclass(frozen=True, slots=True)
class PageFormat:
    """Keys and values of a full page, each by its own quantiser."""

    keys: Quantiser
    values: Quantiser

    def bytes_per_head(self, head_dim: int) -> int:
        """Bytes of one token's key and value of one head, scales included."""
        return self.keys.row_bytes(head_dim) + self.values.row_bytes(head_dim) + 2 * SCALE_BYTES


_QUANTISED = {
    KvFormat.INT8: PageFormat(Int8(), Int8()),
    KvFormat.K8V4: PageFormat(Int8(), Int4()),
    KvFormat.INT4: PageFormat(Int4(), Int4()),
    KvFormat.TQ3: PageFormat(Turbo3(), Turbo3()),
}


def page_format(name: KvFormat, head_dim: int) -> PageFormat | None:
    """The quantised format of that name; None for `auto` and `full`.

    Raises UnsupportedModelError when a row of `head_dim` values does not fill whole bytes.
    """
    if name not in _QUANTISED:
        return None
    if head_dim % _DIVIDES_HEAD:
        raise UnsupportedModelError(
            f"the page format {name} needs a head size that is a multiple of {_DIVIDES_HEAD}; "
            f"this model's is {head_dim}: use the format auto"
        )
    return _QUANTISED[name]


def page_type(name: KvFormat, dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The type of pages that are not quantised, or not yet, of a model that runs in `dtype`.

    float16 for float32 on a CPU: half the bytes to read for every token, and 11 bits of each value. On the starter
    model and tests/cases/long_text.txt the next token's distribution moves by 0.0007 millinats; with bfloat16, which
    keeps 8 bits, by 0.04, and 0.2 % of the most likely tokens are others.
    """
    halved = name is KvFormat.AUTO and dtype == torch.float32 and device.type == "cpu"
    return torch.float16 if halved else dtype


def kv_bytes_per_head(name: KvFormat, head_dim: int, bytes_per_value: int) -> int:
    """Bytes of one token's key and value of one head in a full page; `bytes_per_value` is `page_type`'s."""
    quantised = page_format(name, head_dim)
    return 2 * head_dim * bytes_per_value if quantised is None else quantised.bytes_per_head(head_dim)
