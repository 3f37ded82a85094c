"""The graphs as programs serve them: a configuration, the parts it names, servers' graphs."""
