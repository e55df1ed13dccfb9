"""Evidence in the simulated world: claims, ceilings, leak checks, scene geometry."""
