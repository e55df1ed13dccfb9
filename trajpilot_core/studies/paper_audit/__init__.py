"""The paper's tables recomputed: contradictions and confirmations."""
