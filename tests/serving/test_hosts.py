"""Our HTTP servers answer only those who may call them."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from selfcorrect_rag.serving.hosts import guard, host_names


async def hello(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


APP = Starlette(
    routes=[Route("/", lambda request: PlainTextResponse("hello")), WebSocketRoute("/ws", hello)],
    middleware=guard(host_names("127.0.0.1", ["rag.example"]), pages=["studio.example"]),
)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:80", None, 200),
        ("localhost:80", "http://localhost:80", 200),
        ("rag.example", "https://rag.example", 200),
        ("127.0.0.1:80", "https://studio.example", 200),
        ("evil.example", None, 400),  # a name of its own that resolves here
        ("localhost:80", "http://localhost:81", 403),  # a page of another server here
        ("localhost:80", "https://evil.example", 403),
        ("localhost:80", "null", 403),
        ("localhost:80", "http://[", 403),
    ],
)
def test_hosts_and_origins(host: str, origin: str | None, status: int) -> None:
    headers = {"host": host} | ({"origin": origin} if origin else {})
    assert TestClient(APP).get("/", headers=headers).status_code == status


def test_websockets_of_other_pages_are_refused() -> None:
    client = TestClient(APP)
    with client.websocket_connect("/ws", headers={"host": "localhost"}) as socket:
        assert socket.receive_text() == "hello"
    evil = {"host": "localhost", "origin": "https://evil.example"}
    with pytest.raises(WebSocketDisconnect):
        client.websocket_connect("/ws", headers=evil).__enter__()
