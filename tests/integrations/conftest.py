"""A database of its own for each test, on the session's PostgreSQL."""

from collections.abc import Iterator
from uuid import uuid4

import pytest


@pytest.fixture
def database(postgres_address: str) -> Iterator[str]:
    import psycopg

    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_address, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    yield postgres_address.rsplit("/", 1)[0] + f"/{name}"
    with psycopg.connect(postgres_address, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
