"""Several workers on one Postgres: runs that outlive the process that took them."""
