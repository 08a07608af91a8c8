"""Every living object of some classes: tools and models that nobody told us of may be called all the same."""

import gc
from itertools import compress
from typing import Any


def alive(*kinds: type) -> list[Any]:
    """All objects of these kinds that the garbage collector knows, half-built ones too.

    By `type()`, not `isinstance`: foreign proxies run code in `__class__`. A process has some hundred
    thousand objects of some thousand types, so each type is asked once.
    """
    gc.unfreeze()  # a run sets aside what was there before it (rollout.heap); it is looked at too
    objects: list[Any] = gc.get_objects()
    types = list(map(type, objects))
    wanted = {one for one in set(types) if issubclass(one, kinds)}
    return list(compress(objects, map(wanted.__contains__, types)))
