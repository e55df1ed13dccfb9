"""Planning in latents in simulated worlds: which worlds, how they are computed, judged and printed."""
