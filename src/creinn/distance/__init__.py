"""Distance-aware radii."""
