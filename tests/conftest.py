"""Lets tests and benches import `shapes`: the ways in which people build agents, shared by many of them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
