"""`rules draft`: a draft is kept only where no recording contradicts it, and a person has to agree."""

import json

import pytest
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving

RULES = """
writes = {}
arguments = ["order_id"]
decides = '"ok"'
[outcomes.ok]
answer = 'Const("{}")'
"""
SAID = {
    "get_order": RULES.format("false", "lost"),  # the recordings say "captured"
    "refund_payment": RULES.format("true", "refunded"),
}


def content(body):
    """The draft of the tool that is asked about; "ready" for the first question."""
    asked = body["messages"][-1]["content"]
    tool = asked.rpartition(" tool\n")[2].partition("\n")[0]
    if not tool.startswith("{"):
        return "ready"
    return json.dumps({"reasoning": "", "file": SAID[json.loads(tool)["name"]]})


@pytest.fixture
def server():
    with serving(FaultyEndpointDouble(content=content)) as double:
        yield double


def settle(project, server):
    (project / "dreamgym.toml").write_text(
        f'graph = "agent:graph"\n[experience]\nurls = ["{server.url}"]\nmodel = "m"\n'
        '[tools.get_order]\neffect = "read"\n[tools.refund_payment]\neffect = "destructive"\n'
    )


@pytest.mark.slow
def test_drafts_are_held_against_the_recordings_and_wait_for_a_person(run, recorded, server) -> None:
    settle(recorded, server)
    done = run("rules", "draft")
    assert done.returncode == 0, done.stderr
    assert "dropped  get_order outcomes.ok.answer: call 1 of " in done.stdout
    assert "rule lost, recorded captured" in done.stdout
    drafts = recorded / "rules" / "drafts"
    text = (drafts / "refund_payment.toml").read_text()
    assert text.startswith("# drafted by m at 127.0.0.1:")
    listed = run("rules", "show", "--json")
    assert {one["source"] for one in json.loads(listed.stdout)["rules"]} == {"mined"}
    (drafts / "refund_payment.toml").rename(recorded / "rules" / "refund_payment.toml")
    listed = run("rules", "show", "refund_payment", "--json")
    assert {one["source"] for one in json.loads(listed.stdout)["rules"]} == {"declared"}
    assert all("source" not in json.dumps(sent["messages"][1]) for sent in server.requests[1:])


@pytest.mark.slow
def test_without_an_endpoint_it_says_how_to_name_one(refusal, project) -> None:
    assert "no graph: name one" in refusal("rules", "draft")
    (project / "dreamgym.toml").write_text('graph = "agent:graph"\n')
    assert "[experience] urls = " in refusal("rules", "draft")


@pytest.mark.slow
def test_drafts_of_tools_without_recordings_answer_once_a_person_has_moved_them(run, project, server) -> None:
    settle(project, server)
    assert run("rules", "draft").returncode == 0
    drafts = project / "rules" / "drafts"
    assert {file.stem for file in drafts.iterdir()} == {"get_order", "refund_payment"}
    server.content = lambda body: "ready"  # from here on the model decides nothing
    done = run("simulate", "--tasks", "tasks.jsonl", "--json")
    assert "derived" not in json.loads(done.stdout)["coverage"]["sources"]
    for file in list(drafts.iterdir()):
        file.rename(project / "rules" / file.name)
    done = run("simulate", "--tasks", "tasks.jsonl", "--json")
    assert "holds no recordings yet, so the dream goes by the files in rules/" in done.stderr
    told = json.loads(done.stdout)
    assert told["coverage"]["sources"] == {"derived": 6}
    assert told["counts"]["inconclusive"] == 0
    assert not (project / "REAL").exists()
    assert run("rules", "draft", "refund_paymnt").stderr.strip().endswith("did you mean 'refund_payment'?")


PRICED = "usd_per_million_output = 100.0\n"  # 0.001 USD an answer of the double


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "questions", "said"),
    [
        ("max_calls = 1", 2, "budget spent: calls (limit 1)"),
        ("max_usd = 0.0015", 2, "budget spent: spend in USD (limit 0.0015)"),
        ("max_usd = 0.001", 1, "budget spent: spend in USD (limit 0.001)"),
        ("max_calls = 2", 3, None),
    ],
)
def test_drafting_stops_at_the_budget_and_keeps_what_it_has(
    run, project, server, budget: str, questions: int, said: str | None
) -> None:
    """The first question is whether the endpoint answers at all: it costs, and is no call."""
    settle(project, server)
    text = (project / "dreamgym.toml").read_text().replace('model = "m"\n', f'model = "m"\n{PRICED}')
    (project / "dreamgym.toml").write_text(f"{text}[budget]\n{budget}\n")
    done = run("rules", "draft", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (len(server.requests), told["stopped"]) == (questions, said)
    assert len(told["kept"]) == questions - 1
    assert told["usd"] == pytest.approx(0.001 * questions)
    assert {file.stem for file in (project / "rules" / "drafts").iterdir()} == set(told["kept"])
