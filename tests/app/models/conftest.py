from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "helpers"))

from tiny_shop import models, shop

__all__ = ["models", "shop"]
