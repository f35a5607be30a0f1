"""Makes the blocks known that scenarios run by themselves (``ring token-consensus``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "blocks"))

import alone  # noqa: F401
import stones  # noqa: F401
