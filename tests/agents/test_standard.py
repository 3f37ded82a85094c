"""langchain-tests' standard suites for the tool, for every graph."""

from typing import Any

from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from selfcorrect_rag import as_tool
from tests.agents.scripted import crag, instruct_rag, self_crag, self_rag


class Subject:
    """What both suites ask for."""

    @property
    def tool_constructor(self) -> BaseTool:
        return as_tool(self.make())  # type: ignore[attr-defined]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"question": "Who wrote Emma?"}


class SelfRAG(Subject):
    make = staticmethod(self_rag)


class CRAG(Subject):
    make = staticmethod(crag)


class SelfCRAG(Subject):
    make = staticmethod(self_crag)


class InstructRAG(Subject):
    make = staticmethod(instruct_rag)


class TestSelfRAG(SelfRAG, ToolsUnitTests):
    pass


class TestCRAG(CRAG, ToolsUnitTests):
    pass


class TestSelfCRAG(SelfCRAG, ToolsUnitTests):
    pass


class TestInstructRAG(InstructRAG, ToolsUnitTests):
    pass


class TestSelfRAGRuns(SelfRAG, ToolsIntegrationTests):
    pass


class TestCRAGRuns(CRAG, ToolsIntegrationTests):
    pass


class TestSelfCRAGRuns(SelfCRAG, ToolsIntegrationTests):
    pass


class TestInstructRAGRuns(InstructRAG, ToolsIntegrationTests):
    pass
