"""The planners of other papers in simulated worlds: which worlds, how they are computed, judged and printed."""
