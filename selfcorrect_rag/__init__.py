"""Self-RAG, CRAG and InstructRAG as prebuilt LangGraph graphs."""
