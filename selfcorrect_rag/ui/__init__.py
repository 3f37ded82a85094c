"""The local page: ask, watch a run, approve its searches, see why, and weigh differently."""
