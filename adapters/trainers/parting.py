"""The end of a process that learned with others: it leaves their group while the interpreter is still whole.

Otherwise gloo's threads may hold tensors when the interpreter goes, and abort the process ("terminate called
without an active exception", https://github.com/pytorch/pytorch/pull/179291); torchrun then ends the others
too. After an update that failed the group is not left: that would wait for processes that wait for
this one.
"""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager


def part_at_exit() -> None:
    """Leave the group when this process ends, if there is one."""
    atexit.unregister(_part)
    atexit.register(_part)


@contextmanager
def in_touch() -> Iterator[None]:
    """The processes speak to each other in the block; only if it ends well does this one leave properly."""
    atexit.unregister(_part)
    yield
    part_at_exit()


def _part() -> None:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
