"""Programs of write tools that a model drafts in an imagined run, through `ImaginedExperience`."""

import asyncio
import json
from pathlib import Path

from each_row import each_row

from dreamgym_kit.chat import ChatReply
from dreamgym_kit.dream.drafting import read_draft, tried
from dreamgym_kit.dream.environment_facts import EnvironmentFacts, read_book
from dreamgym_kit.dream.imagined.experience import ImaginedExperience
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.rollout.environment_files import EnvironmentFile
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition

SHOP = Environment("shop")


def spec(name: str, effect: Effect, *args: str) -> ToolSpec:
    return ToolSpec(name, effect, args_schema={"properties": {arg: {"type": "string"} for arg in args}})


SPECS = {
    one.name: one
    for one in (
        spec("get_pool", Effect.READ, "product"),
        spec("get_licence", Effect.READ, "licence_id"),
        spec("list_licences", Effect.READ, "employee_id"),
        spec("assign_licence", Effect.WRITE, "employee_id", "product"),
    )
}
# A language model's description of this tool (pair 178 of its recorded answers), in the form of programs.
ASSIGN = """
writes = true
decides = 'Decide(Less("product<args.product>.used", "product<args.product>.total"), "ok", "full")'
[outcomes.ok]
answer = 'MakeRecord({"licence_id": MadeUp("L-1042"), "product": Get("args.product")})'
[outcomes.full]
fails = true
answer = 'Text("no free seat in the pool of ", Get("args.product"))'
[updates]
"product<args.product>" = 'Assign({"used": Arithmetic("+", Get("old"), Const(1))}, [], None, 1)'
[inserts]
licence_id = '''Insert(Get("result.licence_id"),
  {"product": Get("args.product"), "employee_id": Get("args.employee_id")}, ["product"], 1)'''
"""
DRAFT = {"reasoning": "the description says so", "file": ASSIGN}
READS = {
    "get_pool": {"used": 48, "total": 50},
    "get_licence": {"licence_id": "L-7", "product": "figma"},
    "list_licences": [{"licence_id": "L-7", "product": "figma"}],
}


class ScriptedModelDouble:
    """Returns given drafts, and answers calls from a table."""

    def __init__(self, *drafts: object) -> None:
        self.drafts, self.asked = list(drafts), []

    async def chat(self, request):
        shown = request.messages[1].content
        is_draft = request.schema_name == "tool_rules"
        tool = json.loads(shown.split(" tool\n")[1].splitlines()[0])["name"]
        self.asked.append("draft" if is_draft else tool)
        if is_draft:
            return ChatReply(json.dumps(self.drafts.pop(0)))
        said = READS.get(tool, {"licence_id": "L-9", "product": "figma"})
        reply = {"reasoning": "r", "outcome": "ok", "answer": said, "error": "", "changes": []}
        return ChatReply(json.dumps(reply))


class Run:
    """Episodes of one run over the files in a folder."""

    def __init__(self, folder: Path, model: ScriptedModelDouble, recorded=()) -> None:
        facts = EnvironmentFacts(lambda one: EnvironmentFile(folder / f"{one}.json"), SPECS)
        self.dream = ImaginedExperience(model, facts, SPECS, recorded=lambda _: recorded)

    def episode(self, *calls: Call) -> list[Answer]:
        history: list[Transition] = []
        for call in calls:
            after = "/".join(step.call.key for step in history if step.effect.changes_environment)
            situation = Situation(SHOP, "t", "t.1", history, after, SPECS[call.tool])
            answer = asyncio.run(self.dream.answer(call, situation))
            history.append(transition(call, answer, len(history) + 1))
        return [step.answer for step in history]


def transition(call: Call, answer: Answer, step: int) -> Transition:
    effect = SPECS[call.tool].effect
    return Transition(call, answer, effect, "t.1", step, SHOP, "t")


POOL = Call("get_pool", {"product": "figma"})
SEAT = Call("assign_licence", {"employee_id": "E1", "product": "figma"})


def licence(name: str) -> Call:
    return Call("get_licence", {"licence_id": name})


def test_reads_show_a_drafted_write_without_a_question_the_same_way_each_time(tmp_path: Path) -> None:
    model = ScriptedModelDouble(DRAFT)
    calls = (POOL, SEAT, POOL, Call("list_licences", {"employee_id": "E1"}), licence("L-7"))
    first = Run(tmp_path, model).episode(licence("L-7"), *calls)
    assert model.asked == ["get_licence", "get_pool", "draft", "list_licences"]
    assert first[3].content == {"used": 49, "total": 50}
    made = first[2].content["licence_id"]
    assert [row["licence_id"] for row in first[4].content] == ["L-7", made]
    assert {answer.source for answer in first} == {Source.IMAGINED}
    asked = list(model.asked)
    again = Run(tmp_path, model)  # another run of the same environment
    assert again.episode(POOL, SEAT, POOL, licence(made))[1:3] == first[2:4]
    assert again.episode(POOL, SEAT, licence(made))[2].content == {"licence_id": made, "product": "figma"}
    full = again.episode(POOL, *[seat_of(number) for number in range(3)])
    assert [answer.error for answer in full[1:]] == [None, None, "no free seat in the pool of figma"]
    assert model.asked == asked


def seat_of(number: int) -> Call:
    return Call("assign_licence", {"employee_id": f"E{number}", "product": "figma"})


def test_malformed_draft_costs_one_repair_and_the_run_asks_for_each_write(tmp_path: Path) -> None:
    bad = DRAFT | {"file": 'decides = \'__import__("os").system("touch x")\''}
    model = ScriptedModelDouble(bad, bad)
    for _ in range(2):
        *_, seat = Run(tmp_path, model).episode(POOL, SEAT)
        assert seat.content == {"licence_id": "L-9", "product": "figma"}
    assert model.asked == ["get_pool", "draft", "draft", "assign_licence"]
    (kept,) = read_book((tmp_path / "drafted programs:0.json").read_bytes()).facts.values()
    assert (kept.content["file"], "unknown form '__import__" in kept.content["dropped"][0]) == ("", True)


@each_row(
    "part, wrong",
    [
        ("updates.product<args.product>", ASSIGN.replace('Get("old")', 'Get("pool.used")')),
        (
            "updates.product<args.product>",
            ASSIGN.replace('Arithmetic("+", Get("old"), Const(1))', 'Get("old")'),
        ),
        ("inserts.licence_id", ASSIGN.replace('Get("result.licence_id")', 'Const("L-1")')),
        ("outcomes.ok.answer", ASSIGN.replace('MadeUp("L-1042")', 'Get("args.licence")')),
        ("decides", ASSIGN.replace('"product<args.product>.used"', '"pool.used"')),
    ],
)
def test_parts_that_give_nothing_for_a_made_up_call_are_dropped_and_named(part, wrong) -> None:
    tool = SPECS["assign_licence"]
    rules, dropped = tried(read_draft(json.dumps(DRAFT | {"file": wrong}), tool), tool)
    assert [row.partition(":")[0] for row in dropped] == [part]
    assert tried(read_draft(json.dumps(DRAFT), tool), tool)[1] == []
    assert rules.text != wrong


def test_part_that_a_recording_contradicts_is_rejected_and_the_rest_applies(tmp_path: Path) -> None:
    real = [(POOL, {"used": 3, "total": 9}), (SEAT, {"seat": "figma/E1"})]
    rows = [transition(call, Answer(said, source=Source.REAL), at) for at, (call, said) in enumerate(real, 1)]
    model = ScriptedModelDouble(DRAFT)
    run = Run(tmp_path, model, rows)
    _, seat, pool = run.episode(POOL, SEAT, POOL)
    assert model.asked == ["get_pool", "draft", "assign_licence"]
    # the model answers, code changes
    assert (seat.content["licence_id"], pool.content["used"]) == ("L-9", 49), (
        "the model answers, code changes"
    )
    (dropped,) = run.dream._programs["assign_licence"].dropped
    assert dropped.startswith("outcomes.ok.answer: call 2 of t.1 in shop:0: rule ")
    assert "recorded {'seat': 'figma/E1'}" in dropped
