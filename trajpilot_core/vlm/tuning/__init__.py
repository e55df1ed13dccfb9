"""Low-rank weights for the recogniser of segments: what it is shown, how it is fitted, and the folder that is left."""
