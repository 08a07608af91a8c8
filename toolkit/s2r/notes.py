"""What an overseer remembers of one episode."""

from dataclasses import dataclass, field

from dreamgym_kit.gate.session import Identity
from dreamgym_kit.s2r.writes import RealWrites


@dataclass(slots=True)
class EpisodeNotes:
    """Of one session; the overseer reads and changes it."""

    doubts: list[str] = field(default_factory=list)  # where dream and reality differed, in sentences
    unsure: bool = False  # a real write failed and may have taken effect: nobody knows the state
    made: dict[str, int] = field(default_factory=dict)  # real calls that change the world, by key
    writes: RealWrites = field(default_factory=RealWrites)
    held: dict[Identity, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Numbers of held calls, with the doubts that were shown, for resumed nodes."""
