"""The page formats of the engine by name, and what a token costs in each. The engine's own sums must agree (tests)."""

from __future__ import annotations

from enum import StrEnum


class KvFormat(StrEnum):
    """How full pages of the window are kept; `auto` is the model's own type."""

    AUTO = "auto"
    INT8 = "int8"
    K8V4 = "k8v4"
    INT4 = "int4"
    TQ3 = "tq3"

    def bytes_per_head(self, head_size: int, bytes_per_value: int = 2) -> int:
        """Bytes of one token's key and value of one KV head, scales included; `bytes_per_value` is for `auto`: 2 for
        bf16 and f16, 4 for f32."""
        if self is KvFormat.AUTO:
            return 2 * head_size * bytes_per_value
        return head_size * _BITS[self] // 8 + _SCALES


_BITS = {KvFormat.INT8: 8 + 8, KvFormat.K8V4: 8 + 4, KvFormat.INT4: 4 + 4, KvFormat.TQ3: 3 + 3}
_SCALES = 4  # two of two bytes
