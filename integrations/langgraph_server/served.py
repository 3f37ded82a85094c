"""What a LangGraph server loads. It keeps threads by itself, and refuses a graph that does."""

from graphs import served  # beside this file

self_rag = served()["self_rag"]
crag = served()["crag"]
self_crag = served()["self_crag"]
instruct_rag = served()["instruct_rag"]
