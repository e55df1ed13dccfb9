"""Models of the kinds Qwen3-VL and Qwen3 in this process: their folders, what they are given, and how they answer."""
