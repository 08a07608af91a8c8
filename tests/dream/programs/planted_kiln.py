"""A pottery kiln with a control panel, run for real: its tools act on one kiln that no argument names."""

import copy
import random
from typing import Any

from dreamgym_kit.dream.observed import failed
from dreamgym_kit.dream.recorded_episodes import HistoryStep, RecordedEpisode
from dreamgym_kit.types import Effect, ToolSpec

READS = ("panel", "read_gauge", "shelf", "glaze_price")
ARGS = {
    "panel": (), "read_gauge": ("gauge",), "shelf": (), "glaze_price": ("glaze",), "sign_in": ("potter",),
    "open_door": (), "close_door": (), "heat": ("degrees",), "vent": ("degrees",), "put_in": ("piece",),
}  # fmt: skip
GAUGES, POTTERS, PIECES = ("heat", "gas"), ("ana", "bo", "cy"), ("bowl", "vase", "cup", "tile")
HOTTEST = 1300


def specs() -> dict[str, ToolSpec]:
    return {
        tool: ToolSpec(
            tool,
            Effect.READ if tool in READS else Effect.WRITE,
            args_schema={"properties": {name: {"type": "string"} for name in args}},
        )
        for tool, args in ARGS.items()
    }


def world(number: int) -> str:
    return f"default/kiln:{number}"


class Kiln:
    """Its rules are what a dream has to find out; each world's kiln begins differently."""

    def __init__(self, number: int) -> None:
        drawn = random.Random(number)
        self.door = drawn.choice(["open", "closed"])
        self.heat_now = drawn.randrange(20, 400, 10)
        self.gas = drawn.randrange(30, 90)
        self.fan = drawn.choice(["low", "high"])
        self.pieces = drawn.sample(PIECES, drawn.randint(0, 2))
        self.prices = {glaze: drawn.randrange(5, 50) for glaze in ("blue", "moss", "snow")}
        self.potter = ""

    def call(self, tool: str, args: dict[str, Any]) -> Any:
        return copy.deepcopy(getattr(self, tool)(**args))

    def panel(self) -> Any:
        return {"door": self.door, "fan": self.fan, "potter": self.potter}

    def read_gauge(self, gauge: str) -> Any:
        return {"temperature": self.heat_now} if gauge == "heat" else {"pressure": self.gas}

    def shelf(self) -> Any:
        return {"pieces": self.pieces}

    def glaze_price(self, glaze: str) -> Any:
        return {"price": self.prices[glaze]}

    def sign_in(self, potter: str) -> Any:
        self.potter = potter
        return {"potter": potter}

    def open_door(self) -> Any:
        if self.heat_now > 500:
            return {"error": "The kiln is too hot to open."}
        self.door = "open"
        return {"door": "open"}

    def close_door(self) -> Any:
        self.door = "closed"
        return {"door": "closed"}

    def heat(self, degrees: int) -> Any:
        if self.door == "open":
            return {"error": "Close the door first."}
        if self.heat_now + degrees > HOTTEST:
            return {"error": f"The kiln takes no more than {HOTTEST} degrees."}
        self.heat_now += degrees
        return {"temperature": self.heat_now, "pressure": self.gas}

    def vent(self, degrees: int) -> Any:
        self.heat_now = max(20, self.heat_now - degrees)
        return {"temperature": self.heat_now}

    def put_in(self, piece: str) -> Any:
        if self.door == "closed":
            return {"error": "Open the door first."}
        self.pieces.append(piece)
        return {"pieces": self.pieces}


def drawn_calls(seed: int, count: int) -> list[tuple[str, dict[str, Any]]]:
    """A potter's day, at random."""
    drawn = random.Random(seed)
    kinds: list[tuple[str, dict[str, Any]]] = []
    for _ in range(count):
        kinds.append(
            drawn.choice(
                [
                    ("panel", {}),
                    ("read_gauge", {"gauge": drawn.choice(GAUGES)}),
                    ("read_gauge", {"gauge": "heat"}),
                    ("shelf", {}),
                    ("glaze_price", {"glaze": drawn.choice(["blue", "moss", "snow"])}),
                    ("sign_in", {"potter": drawn.choice(POTTERS)}),
                    ("open_door", {}),
                    ("close_door", {}),
                    ("heat", {"degrees": drawn.randrange(50, 400, 25)}),
                    ("heat", {"degrees": drawn.randrange(50, 400, 25)}),
                    ("vent", {"degrees": drawn.randrange(10, 100, 10)}),
                    ("put_in", {"piece": drawn.choice(PIECES)}),
                ]
            )
        )
    return kinds


def episode(name: str, number: int, calls: list[tuple[str, dict[str, Any]]]) -> RecordedEpisode:
    """The calls, made on that world's kiln as it begins."""
    kiln, steps = Kiln(number), []
    for tool, args in calls:
        seen = kiln.call(tool, args)
        steps.append(HistoryStep(tool, args, "", seen, writes=tool not in READS, failed=failed(seen)))
    return RecordedEpisode(name, world(number), tuple(steps))


def recorded(episodes: int = 48) -> list[RecordedEpisode]:
    return [episode(f"e{n}", n % 12, drawn_calls(n, 14)) for n in range(episodes)]


def crawl(number: int) -> RecordedEpisode:
    """The panel, the shelf and all gauges are read once."""
    reads: list[tuple[str, dict[str, Any]]] = [("panel", {}), ("shelf", {})]
    return episode(f"crawl:{number}", number, reads + [("read_gauge", {"gauge": gauge}) for gauge in GAUGES])
