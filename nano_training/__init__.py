"""The made-up world, rows, trainers and evaluations of the models in `selfcorrect_rag.demo`."""
