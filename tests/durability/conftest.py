"""A real PostgreSQL, where one is installed."""

from collections.abc import Iterator

import pytest

from integrations.langgraph_server.services import NotInstalled, postgres


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    pytest.importorskip("psycopg")
    try:
        with postgres("-F") as address:
            yield address
    except NotInstalled as error:
        pytest.skip(str(error))
