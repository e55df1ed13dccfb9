"""The simulated world: procedures, head motion, rendering, files in the Ego-Exo4D layout."""
