"""The local page: ask any graph, watch it, approve its searches, weigh its result differently."""
