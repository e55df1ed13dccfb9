"""Rows of vision-language models: prompts, requests and their linter, answers by digest, parsing, clients."""
