"""The simulated worlds of the claims: which there are, how they are computed, what is gathered from them."""
