"""`dreamgym-kit experience`: from recordings to a model that stands in for tools, and its gate."""

import shlex
from contextlib import closing, contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json, say_steps, tell
from dreamgym_kit.cli.running import inspected, served_model
from dreamgym_kit.errors import ExitCode, UnknownName, UserError
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dreamgym_kit.adapters.distilling.material import Material
    from dreamgym_kit.rollout.budgets import RunAccount
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.training.annotation import Annotated as Outcome
    from dreamgym_kit.training.annotation import Annotator, Trajectory
    from dreamgym_kit.trust.acceptance import Exactness, Gate
    from dreamgym_kit.types import Spend

EXAMPLES = (
    "dreamgym-kit experience annotate distilled my_agent:graph",
    "dreamgym-kit experience annotate distilled --by teacher --outcomes runs/2026-11-21-record-desk",
    "dreamgym-kit experience train distilled --model models/llama-3.1-8b --lora 16 --set distill.bf16=true",
    "dreamgym-kit experience eval distilled",
)
CODES = "Exit codes: 0 done; 1 stopped early, or a tool failed the acceptance check; 2 cannot run."
RULES, TEACHER = "rules", "teacher"

Out = Annotated[Path, typer.Argument(metavar="OUT", help="Directory of this distillation.")]
By = Annotated[
    str,
    typer.Option("--by", help="rules: trees mined from the recordings; teacher: the model of [experience]."),
]
SplitBy = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        help="Unit that training and held-out recordings never share: environment, task, entity, episode.",
        show_default="environment",
    ),
]
HoldOut = Annotated[
    float, typer.Option("--hold-out", min=0, max=0.9, help="Share of the groups that is held out.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed of the split and the weights.")]
Outcomes = Annotated[
    list[Path] | None,
    options.option("--outcomes", "A `record` run: gives each episode's verdict and request.", "RUN"),
]
Base = Annotated[Path, typer.Option("--model", metavar="DIR", help="Model directory to start from.")]
Tried = Annotated[
    Path | None, typer.Option("--model", metavar="DIR", help="Model to evaluate.", show_default="OUT/model")
]
Server = Annotated[
    bool, options.option("--endpoint", "Evaluate the served model of [experience] instead of a directory.")
]

app = options.group("Build and evaluate experience models.", EXAMPLES, CODES)


@app.command("annotate")
def annotate_command(
    out: Out,
    graph: options.Graph = None,
    by: By = RULES,
    split: SplitBy = None,
    hold_out: HoldOut = 0.25,
    seed: Seed = 0,
    outcomes: Outcomes = None,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Annotate each recorded call with the reason for its answer; run it again to continue.

    Chooses the held-out recordings, once. They are neither annotated nor used for training.
    """
    import asyncio

    from dreamgym_kit.adapters.distilling.material import begin, material, outcomes_of
    from dreamgym_kit.adapters.stores.factory import open_to_search
    from dreamgym_kit.rollout.budgets import RunAccount
    from dreamgym_kit.settings.buffer_url import buffer_of
    from dreamgym_kit.training.annotation import KeptAnnotations, annotate

    if by not in (RULES, TEACHER):
        raise UnknownName("annotator", by, known=(RULES, TEACHER), source="--by", where="who can annotate")
    settings = options.settings_for(graph, buffer=buffer, tenant=tenant)
    tools = _tools(settings)
    texts, successes = outcomes_of(outcomes or ())
    with closing(open_to_search(buffer_of(settings), settings)) as store:
        begun = begin(
            out, store, settings, tools, by=tuple(split or ("environment",)), share=hold_out, seed=seed
        )
        recorded = material(begun, store, settings, texts=texts, outcomes=successes)
        taught, of = recorded.sides.taught, len(recorded.sides.taught)
        annotations, account = KeptAnnotations(out), RunAccount()
        earlier, asks = annotations.spend, by == TEACHER

        def report(done: "Outcome") -> None:
            if asks and done.made % max(1, of // 20) == 0:
                tell(f"{done.before + done.made} of {of} episodes annotated")

        with _annotator(by, settings, taught, earlier, account) as annotator:
            at_once = settings.simulate.concurrency if asks else 1
            done = asyncio.run(
                annotate(annotator, taught, annotations, at_once=at_once, account=account, tell=report)
            )
    _show_annotated(done, recorded, out, spend=earlier + account.spend, as_json=as_json)
    if done.stopped or done.unusable:
        raise typer.Exit(ExitCode.FAILED)


@app.command("train")
def train_command(
    out: Out,
    model: Base,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimizer steps.")] = 600,
    lr: Annotated[float, typer.Option("--lr", min=0, help="Learning rate.")] = 1e-4,
    lora: Annotated[
        int | None,
        typer.Option("--lora", min=1, metavar="RANK", help="Train an adapter.", show_default="all weights"),
    ] = None,
    seed: Seed = 0,
    buffer: options.Buffer = None,
    assigned: options.Set = None,
    as_json: options.AsJson = False,
) -> None:
    """Fine-tune a model on the annotated recordings and write it to OUT/model.

    It trains on exactly the prompts and decisions of a dream. With --lora the adapter is merged at the end.
    If killed, run it again to continue from the last checkpoint. Other options are settings:
    [distill], or --set distill.batch_size=32.
    """
    from dreamgym_kit.adapters.distilling.material import material, read_begun
    from dreamgym_kit.adapters.models.folders import require_extra

    begun = read_begun(out)  # a wrong folder is told before a package that is missing
    require_extra("experience train")
    from dreamgym_kit.adapters.distilling.training import train
    from dreamgym_kit.adapters.stores.factory import open_to_search
    from dreamgym_kit.adapters.trainers.options import LoraOptions
    from dreamgym_kit.adapters.trainers.sft import SftOptions, SftStep
    from dreamgym_kit.settings.buffer_url import buffer_of
    from dreamgym_kit.training.lessons import Leaving

    if not isfinite(lr):
        raise UserError(f"lr: {lr} is not a finite number; leave --lr out for the default.")
    settings = options.Given(None, {"buffer": buffer}, assigned or ()).settings()
    distill, share = settings.distill, settings.distill.leave_out
    wanted = SftOptions(
        steps=steps,
        batch=distill.batch_size,
        pieces=distill.micro_batches,
        learning_rate=lr,
        warmup_steps=min(30, max(1, steps // 10)),
        seed=seed,
        lora=None if lora is None else LoraOptions(rank=lora, alpha=2 * lora),
        dtype="bfloat16" if distill.bf16 else "float32",
        checkpointing=distill.bf16,
        save_every=distill.save_every,
    )
    every = max(1, steps // 20)

    def report(step: SftStep) -> None:
        if step.step % every == 0 or step.step == steps:
            tell(f"step {step.step} of {steps}  loss {step.loss:.4f}")

    with closing(open_to_search(buffer_of(settings), settings)) as store:
        done = train(
            out,
            material(begun, store, settings),
            model,
            wanted,
            leaving=Leaving(share, share, share, reasoning=distill.reasoning),
            most_tokens=distill.max_tokens,
            tell=report,
        )
    lessons, unsayable = done.counts.lessons.total(), dict(done.counts.unsayable)
    loss = round(done.steps[-1].loss, 4)
    if as_json:
        summary = {"model": str(done.folder), "lessons": lessons, "unsayable": unsayable}
        summary |= {"unannotated_episodes": done.counts.unannotated, "too_long": done.rows.too_long}
        say_json({**summary, "longest_tokens": done.rows.longest, "loss": loss})
        return
    say(f" {done.folder}  {lessons} lessons, loss {loss}")
    if unsayable:
        tools = ", ".join(f"{name} {count}" for name, count in sorted(unsayable.items()))
        say(f" not taught, since no decision makes the answer: {one_line(tools)}")
    if done.rows.too_long:
        say(f" not taught, since longer than the model reads: {done.rows.too_long}")
    say_steps(("Try", f"dreamgym-kit experience eval {shlex.quote(str(out))}", "on held-out recordings"))


@app.command("eval")
def eval_command(
    out: Out,
    model: Tried = None,
    endpoint: Server = False,
    most: Annotated[int, typer.Option("--most", min=0, help="Maximum of held-out calls; 0: all.")] = 400,
    bound: Annotated[
        float, typer.Option("--bound", min=0, max=1, help="Share of exact answers that a tool must reach.")
    ] = 0.9,
    seed: Seed = 0,
    buffer: options.Buffer = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict held-out calls: exactness per tool, calibration, acceptance.

    Compares with recordings and rules. Writes acceptance.json into the model's directory (with --endpoint:
    into OUT). A dry run asks the model for tools that are trusted or watched, a training for trusted ones.
    """
    import asyncio

    from dreamgym_kit.adapters.distilling.material import MODEL, material, read_begun
    from dreamgym_kit.adapters.distilling.training import held_out_calls, taught_to
    from dreamgym_kit.adapters.models.named_models import open_directory
    from dreamgym_kit.adapters.stores.factory import open_to_search
    from dreamgym_kit.deployment.model_files import digest_of_folder
    from dreamgym_kit.settings.buffer_url import buffer_of
    from dreamgym_kit.trust.acceptance import FILE, NEVER, exactness, gate_of, write_gate

    begun = read_begun(out)
    settings = options.settings_for(buffer=buffer, tenant=begun.tenant)
    if endpoint and model is not None:
        raise UserError("experience eval: --model is a directory, --endpoint a server; name one of them.")
    folder = None if endpoint else model or out / MODEL

    def report(done: int, of: int) -> None:
        if done % max(1, of // 10) == 0:
            tell(f"{done} of {of} held-out calls asked")

    with closing(open_to_search(buffer_of(settings), settings)) as store:
        chat = served_model(settings) if folder is None else open_directory(folder)
        with closing(chat):
            recorded = material(begun, store, settings)
            without = frozenset() if folder is None else taught_to(folder)
            calls = asyncio.run(
                held_out_calls(recorded, chat, without=without, most=most, seed=seed, tell=report)
            )
    measured = exactness(calls, threshold=settings.simulate.min_confidence)
    gate = gate_of(measured, weights="" if folder is None else digest_of_folder(folder), bound=bound)
    path = (out if folder is None else folder) / FILE
    write_gate(path, gate, measured.to_json())
    if as_json:
        verdicts = {name: tool.verdict for name, tool in gate.tools.items()}
        say_json({**measured.to_json(), "gate": verdicts, "file": str(path)})
    else:
        _show_exact(measured, gate, path)
    if any(tool.verdict == NEVER for tool in gate.tools.values()):
        raise typer.Exit(ExitCode.FAILED)


def _tools(settings: "Settings") -> "list[Any]":
    """The graph's tools; none where no graph is named."""
    if settings.graph is None:
        tell(
            "warning: no graph is named, so tools are known by their recordings alone; their descriptions "
            "and arguments will stand in a dream's prompts, and not in what is taught"
        )
        return []
    return inspected(settings.graph, settings).tools


@contextmanager
def _annotator(
    by: str, settings: "Settings", taught: "Sequence[Trajectory]", earlier: "Spend", account: "RunAccount"
) -> "Iterator[Annotator]":
    """Yield the annotator; `earlier`: what was spent in this folder before."""
    from dreamgym_kit.dream.structured_output import CountedEndpoint
    from dreamgym_kit.rollout.budgets import BudgetedEndpoint, RunBudget
    from dreamgym_kit.training.annotators import MinedRules, TeachingModel

    if by == RULES:
        yield MinedRules(taught)
        return
    with closing(served_model(settings, role="teacher")) as endpoint:
        budget = RunBudget(settings.budget.max_calls, settings.budget.max_usd)
        budget.count_earlier(calls=earlier.calls, usd=earlier.cost_usd)
        counted = CountedEndpoint(BudgetedEndpoint(endpoint, budget, calls=1), account, "teacher")
        name = settings.experience.of("teacher").model or ""
        yield TeachingModel(counted, name=name, seed=settings.simulate.seed)


def _show_annotated(
    done: "Outcome", recorded: "Material", out: Path, *, spend: "Spend", as_json: bool
) -> None:
    """Show the results of an annotation, its total cost so far, and the next step."""
    taught, measured = recorded.sides.taught, recorded.sides.measured
    if as_json:
        say_json(
            {
                "episodes": len(taught),
                "annotated": done.before + done.made,
                "made": done.made,
                "held_out": len(measured),
                "groups": recorded.sides.groups,
                "unusable": done.unusable,
                "stopped": done.stopped or None,
                "spend": {"answers": spend.calls, "tokens": spend.tokens, "usd": round(spend.cost_usd, 6)},
            }
        )
        return
    for name, why in list(done.unusable.items())[:20]:
        tell(f"not annotated: {one_line(name)}: {one_line(why)}")
    if done.stopped:
        tell(f"stopped: {one_line(done.stopped)}; run it again to go on")
    by = ", ".join(recorded.begun.by)
    say(f" {out}  {done.before + done.made} of {len(taught)} episodes annotated, {done.made} of them now")
    say(f" held out {len(measured)} episodes: {recorded.sides.groups} groups apart by {by}")
    if spend.calls:
        say(f" teacher so far: {spend.calls} answers, {spend.tokens:,} tokens, {spend.cost_usd:.4f} USD")
    train = f"dreamgym-kit experience train {shlex.quote(str(out))} --model DIR"
    say_steps(("Train", train, "a model on them"))


def _show_exact(measured: "Exactness", gate: "Gate", path: Path) -> None:
    """Exactness and verdict of each tool."""
    from dreamgym_kit.trust.acceptance import WAYS

    width = max(4, *(len(one_line(tool.tool)) for tool in measured.tools))
    say(f" {measured.calls} held-out calls; share answered exactly as recorded\n")
    say(f" {'tool':{width}}  {'calls':>5}  " + "  ".join(f"{way:>8}" for way in WAYS) + "  gate")
    for tool in measured.tools:
        shares = "  ".join(f"{tool.exact[way] / tool.calls:8.3f}" for way in WAYS)
        verdict = gate.tools[tool.tool]
        say(f" {one_line(tool.tool):{width}}  {tool.calls:5}  {shares}  {verdict.verdict}: {verdict.why}")
    say(f" {'all':{width}}  {measured.calls:5}  " + "  ".join(f"{measured.share(way):8.3f}" for way in WAYS))
    if measured.calibration is not None:
        say(f"\n calibration error {measured.calibration:.3f}")
    say(f" gate  {path}")
