"""Extension of the paper: radii that grow with the distance from the training data."""
