"""Makes this process one that never dreamt, so that no test hears of another one's dream."""

from dreamgym_kit.guard import egress
from dreamgym_kit.routing.process import PROCESS


def forget_dreams() -> None:
    """What earlier dreams left running is forgotten with them; the blocks that are open stay as they are."""
    PROCESS.armed = PROCESS.held > 0
    PROCESS.told(once=True)
    egress._ended = None
