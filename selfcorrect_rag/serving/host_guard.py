"""The guard of the LangGraph server: this machine, Studio and named hosts may call it."""

import os

from starlette.applications import Starlette
from starlette.middleware import Middleware

from selfcorrect_rag.serving.hosts import ALLOWED_HOSTS, LOOPBACK
from selfcorrect_rag.serving.known_hosts import KnownHosts
from selfcorrect_rag.serving.langgraph_server import warming

STUDIO = ("smith.langchain.com", "eu.smith.langchain.com")
"""The hosts of Studio's page."""

NAMES = (*LOOPBACK, *os.environ.get(ALLOWED_HOSTS, "").split())
app = Starlette(middleware=[Middleware(KnownHosts, NAMES, STUDIO)], lifespan=warming)
