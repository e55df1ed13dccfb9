"""How stages are run, whatever they compute: each declares what it reads and writes; the rest is written once, here.

- `stage.py`: what a stage is. `key.py`: the key of its output, made of the content of what it reads, its settings and
  its version. `resolve.py`: settings left to the machine (`auto`), decided before keys are made.
- `execution/`: run one stage: reuse what is there under its key, compute what is missing, commit one manifest.
- `planning/`: what a run would do and why, and which outputs are fresh; nothing is computed.
- `order.py`: which stages a run asks for. `progress.py`: how far one is. `provenance.py`, `last_run.py`: what was
  read, and what was asked for last.
"""
