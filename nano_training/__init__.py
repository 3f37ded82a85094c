"""What made the shipped nano models: a made-up world, its rows, trainers and evaluations."""
