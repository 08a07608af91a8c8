"""Makes this process one that never dreamt, so that no test hears of another one's dream."""

import sys


def forget_dreams() -> None:
    """What earlier dreams left running is forgotten with them; the blocks that are open stay as they are."""
    from dreamgym_kit.guard import egress
    from dreamgym_kit.routing.process import PROCESS

    PROCESS.armed = PROCESS.open_dreams > 0
    PROCESS.stray_calls(once=True)
    egress._ended = None


def after_test() -> None:
    """What a dream refused, and that there was one, is not the next test's to hear.

    And the process looks for new secrets once a second, so that the next test would be given this one's.
    """
    if "dreamgym_kit.routing.process" in sys.modules:
        forget_dreams()
    masking = sys.modules.get("dreamgym_kit.replay.masking")
    if masking is not None:
        masking._SECRETS_OF_PROCESS.until = 0.0
