"""The paper's published numbers as data, what recomputing them shows, and the decisions that this project took."""
