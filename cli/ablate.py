"""`dreamgym-kit experience ablate`: what each part of the dream is worth, by leaving one out at a time."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.approving import agree
from dreamgym_kit.cli.output import say, say_json, tell
from dreamgym_kit.cli.running import end

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.run.ablation import AblationRequest

EXAMPLES = (
    "dreamgym-kit experience ablate my_agent:graph",
    "dreamgym-kit experience ablate --without history --without state --calls 200 --out runs/ablation",
    "dreamgym-kit experience ablate --policy models/agent --tasks tasks.jsonl",
    "dreamgym-kit experience ablate --policy models/agent --learn --yes",
)
CODES = (
    "Exit codes: 0 measured; 2 cannot run, or nobody agreed. Run it again to go on where it was broken off."
)


class Part(StrEnum):
    """What is left out."""

    HISTORY = "history"
    STATE = "state"
    RETRIEVAL = "retrieval"
    REASONING = "reasoning"
    CURRICULUM = "curriculum"
    FAULTS = "faults"


Without = Annotated[
    list[Part] | None, options.option("--without", "Leave this out; may be repeated. By default all.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that rows are kept in.")]
Most = Annotated[int, typer.Option("--calls", min=1, help="Held-out recorded calls put to each dream.")]
Policy = Annotated[Path | None, options.option("--policy", "A model that fares in each dream.", "DIR")]
Learn = Annotated[
    bool, options.option("--learn", "Train it in each dream, then try it on the REAL tools; asks.")
]


@options.keyed("tasks", "buffer")
def command(
    given: options.Given,
    without: Without = None,
    policy: Policy = None,
    learn: Learn = False,
    most: Most = 400,
    out: Out = Path("ablation"),
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Leave out one part of the dream at a time: how true it is then, and how an agent fares in it.

    Recorded calls are put to each dream and held against what the real tools said. With --policy an agent
    works in each; with --learn it is trained in each and tried on the real tools.
    """
    settings = given.settings()
    from dreamgym_kit.adapters.langgraph.run.ablation import AblationRequest, ablate
    from dreamgym_kit.report.ablation import render_ablation
    from dreamgym_kit.rollout.tasks import read_tasks

    parts = tuple(dict.fromkeys(part.value for part in without or ())) or None
    needs_tasks = policy is not None or learn
    request = AblationRequest(
        graph=options.graph_of(settings, "ablate"),
        tasks=read_tasks(options.tasks_of(settings, "ablate")) if needs_tasks else [],
        settings=settings,
        out=out.absolute(),
        parts=parts,
        policy=policy.absolute() if policy is not None else None,
        learn=learn,
        most=most,
    )
    if learn:
        _agree(request, yes=yes)
    rows = ablate(request, tell=lambda row: tell(f"measured without {row.part}"))
    if as_json:
        from dreamgym_kit.report.ablation import ROWS

        say_json({"kind": "ablate", "rows": [ROWS.write(row) for row in rows]})
    else:
        say(render_ablation(rows))

    end(0, dreamt=policy is not None)


def _agree(request: "AblationRequest", *, yes: bool) -> None:
    """Say what the real tools can do and how often they may be called, and ask."""
    from dreamgym_kit.adapters.langgraph.run.ablation import ablated_parts
    from dreamgym_kit.types import Split

    tried = [task for task in request.tasks if task.split is Split.HELD_OUT] or list(request.tasks)
    episodes = (1 + len(ablated_parts(request))) * len(tried) * request.settings.train.eval_n
    agree(request.graph, request.settings, episodes=episodes, yes=yes, command="ablate")
