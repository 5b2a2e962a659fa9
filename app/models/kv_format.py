"""The page formats of the engine by name, and what a token costs in each. The engine's own sums must agree (tests)."""

from __future__ import annotations

from enum import StrEnum


class KvFormat(StrEnum):
    """How full pages of the window are kept: `auto` in 16 bits a value, `full` in the type that the model runs in."""

    AUTO = "auto"
    FULL = "full"
    INT8 = "int8"
    K8V4 = "k8v4"
    INT4 = "int4"
    TQ3 = "tq3"

    def bytes_per_head(self, head_size: int) -> int:
        """Bytes of one token's key and value of one KV head, scales included; of `full` on a CPU, where models run in
        float32: on a GPU it is what `auto` is."""
        return head_size * _BITS[self] // 8 + (_SCALES if self in _QUANTISED else 0)


_QUANTISED = {KvFormat.INT8: 8 + 8, KvFormat.K8V4: 8 + 4, KvFormat.INT4: 4 + 4, KvFormat.TQ3: 3 + 3}
_BITS = {KvFormat.AUTO: 16 + 16, KvFormat.FULL: 32 + 32, **_QUANTISED}
_SCALES = 4  # two of two bytes
