"""Extension of the paper: radii that grow with the distance to the data."""
