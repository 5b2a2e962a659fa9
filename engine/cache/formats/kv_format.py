"""The formats by name, and what a token costs in each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.cache.formats.integer import Int4, Int8
from engine.cache.formats.rows import SCALE_BYTES, Quantiser
from engine.cache.formats.turbo import Turbo3
from engine.types import UnsupportedModelError

_DIVIDES_HEAD = 8  # values of a row that share a byte of Turbo3's high plane


class KvFormat(StrEnum):
    """How full pages are kept. `auto` is the model's own type: nothing is quantised."""

    AUTO = "auto"
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
    """The quantised format of that name; None for `auto`.

    Raises UnsupportedModelError when a row of `head_dim` values does not fill whole bytes.
    """
    if name is KvFormat.AUTO:
        return None
    if head_dim % _DIVIDES_HEAD:
        raise UnsupportedModelError(
            f"the page format {name} needs a head size that is a multiple of {_DIVIDES_HEAD}; "
            f"this model's is {head_dim}: use the format auto"
        )
    return _QUANTISED[name]


def kv_bytes_per_head(name: KvFormat, head_dim: int, bytes_per_value: int) -> int:
    """Bytes of one token's key and value of one head in a full page; `bytes_per_value` is the model's own type's."""
    quantised = page_format(name, head_dim)
    return 2 * head_dim * bytes_per_value if quantised is None else quantised.bytes_per_head(head_dim)
