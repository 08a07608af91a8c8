"""The agent's state: the conversation, and what was handed to a person."""

import operator
from typing import Annotated, Any, NotRequired

from langchain.agents import AgentState


class DeskState(AgentState[Any]):
    """What the desk's graph keeps besides the messages."""

    escalated: NotRequired[Annotated[list[str], operator.add]]  # orders and customers, in order
