"""When this process began, as far as Tessera knows: files that are written later may not be what was imported."""

from __future__ import annotations

import time

BEGAN = time.time()
