"""The reader: the embedded model that answers from passages, in their own words."""
