"""The guard of the LangGraph server: this machine, Studio and named hosts may call it."""

import os

from starlette.applications import Starlette

from selfcorrect_rag.serving.hosts import ALLOWED_HOSTS, LOOPBACK, guard

STUDIO = ("smith.langchain.com", "eu.smith.langchain.com")
"""The hosts of Studio's page, which is not served from this machine."""

_names = [*LOOPBACK, *os.environ.get(ALLOWED_HOSTS, "").split()]
app = Starlette(middleware=guard(_names, [*_names, *STUDIO]))
