"""langchain-tests' standard suites for the tool."""

from typing import Any

from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from selfcorrect_rag import as_tool
from tests.agents.scripted import self_crag


class Subject:
    """What both suites ask for."""

    @property
    def tool_constructor(self) -> BaseTool:
        return as_tool(self_crag())

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"question": "Who wrote Emma?"}


class TestTool(Subject, ToolsUnitTests):
    pass


class TestToolRuns(Subject, ToolsIntegrationTests):
    pass
