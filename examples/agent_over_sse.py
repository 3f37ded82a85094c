"""A chat agent with CRAG as its tool, threads in SQLite, and its stream sent as server-sent events.

pip install starlette uvicorn langgraph-checkpoint-sqlite
python examples/agent_over_sse.py openai:gpt-4o-mini threads.sqlite
curl -N http://127.0.0.1:8080/threads/1 -d "Who discovered penicillin?"
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from selfcorrect_rag import as_tool, create_crag
from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM
from selfcorrect_rag.search.demo import demo_index


def server(chat_model: BaseChatModel, threads: str) -> Starlette:
    """POST /threads/NAME with a question answers with a stream of events."""
    llm = ReaderLLM.load()
    library = as_tool(
        create_crag(llm, demo_index().as_retriever(), ReaderEvaluator(llm.reader)), name="library"
    )

    @asynccontextmanager
    async def agent_of(app: Starlette) -> AsyncIterator[dict[str, object]]:
        async with AsyncSqliteSaver.from_conn_string(threads) as saver:
            yield {"agent": create_agent(chat_model, [library], checkpointer=saver)}

    async def answer(request: Request) -> StreamingResponse:
        question = (await request.body()).decode()
        thread: RunnableConfig = {"configurable": {"thread_id": request.path_params["thread"]}}

        async def events() -> AsyncIterator[str]:
            asked = {"messages": [{"role": "user", "content": question}]}
            # The events of CRAG, in the tool, come with subgraphs; the agent's words have no ns.
            modes = ["messages", "custom"]
            stream = request.state.agent.astream(
                asked, thread, stream_mode=modes, subgraphs=True, version="v2"
            )
            async for part in stream:
                data = part["data"]
                if part["type"] == "custom":  # retrieved, graded, answered, and so on
                    yield f"event: {data['event']}\ndata: {json.dumps(data)}\n\n"
                elif not part["ns"] and isinstance(data[0], AIMessage) and data[0].text:
                    yield f"event: token\ndata: {json.dumps(data[0].text)}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return Starlette(
        routes=[Route("/threads/{thread}", answer, methods=["POST"])], lifespan=agent_of
    )


if __name__ == "__main__":
    uvicorn.run(server(init_chat_model(sys.argv[1]), sys.argv[2]), port=8080)
