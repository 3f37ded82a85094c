"""A run as a page, and the local page: ask, watch, approve searches, see why, weigh differently."""
