"""The steps of the graphs, one a file, named as in the papers and as Studio shows them."""
