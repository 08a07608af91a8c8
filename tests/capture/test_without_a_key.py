"""A graph whose models the policy answers for opens without a provider's key; nothing of it stays behind."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from capture.policy_server_double import PolicyServerDouble, says, scripted
from each_row import each_row

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.setup import STAND_IN, open_graph_for
from dreamgym_kit.errors import GraphNotLoaded
from dreamgym_kit.settings.load import parse_settings

MODELS = {
    "openai": "from langchain_openai import ChatOpenAI\nmodel = ChatOpenAI(model='x')",
    "anthropic": "from langchain_anthropic import ChatAnthropic\nmodel = ChatAnthropic(model='x')",
    "google": "from langchain_google_genai import ChatGoogleGenerativeAI as Chat\nmodel = Chat(model='x')",
    "by name": "from langchain.chat_models import init_chat_model\nmodel = init_chat_model('openai:x')",
    "variables of its own": (
        "import os\nfrom langchain_openai import ChatOpenAI\n"
        "model = ChatOpenAI(model='x', api_key=os.environ['OUR_API_KEY'], base_url=os.environ.get('BASE'))\n"
        "other = os.environ['OTHER_API_KEY']"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.endswith("_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def opened(folder: Path, name: str, model: str, *, policy: Any, settings: str = "") -> list[str]:
    """Keys that are set while the graph is open."""
    (folder / f"{name}.py").write_text(
        f"{model}\nfrom langchain.agents import create_agent\ngraph = create_agent(model, [])\n"
    )
    said = parse_settings(settings, path=folder / "dreamgym.toml")

    async def look() -> list[str]:
        async with open_graph_for(RunRequest(graph=f"{name}:graph", tasks=[], settings=said, policy=policy)):
            return [key for key, value in os.environ.items() if value == STAND_IN]

    return asyncio.run(look())


@each_row("kind", MODELS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_graph_opens_and_its_environment_is_put_back(folder: Path, kind: str) -> None:
    name = f"keyless_{kind.replace(' ', '_')}"
    assert "OPENAI_API_KEY" in opened(
        folder, name, MODELS[kind], policy=PolicyServerDouble(scripted(says("x")))
    )
    assert STAND_IN not in os.environ.values()


def test_a_key_that_is_set_stays_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    policy = PolicyServerDouble(scripted(says("x")))
    assert "OPENAI_API_KEY" not in opened(folder, "keyed", MODELS["openai"], policy=policy)
    assert os.environ["OPENAI_API_KEY"] == "mine"


@each_row("settings", ["", '[policy]\nonly_nodes = ["model"]\n'])
def test_models_that_answer_for_themselves_need_their_key(folder: Path, settings: str) -> None:
    policy = PolicyServerDouble(scripted(says("x"))) if settings else None
    name = f"own_{len(settings)}"
    with pytest.raises(GraphNotLoaded, match="It needs OPENAI_API_KEY, which is not set"):
        opened(folder, name, MODELS["openai"], policy=policy, settings=settings)
