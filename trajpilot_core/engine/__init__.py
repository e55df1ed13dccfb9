"""Running stages, whatever they compute: each declares what it reads and writes; everything else is written once, here.

- `stage.py`: the declaration of a stage. `key.py`: the key of its output, over the content of its inputs, its settings
  and its version. `resolve.py`: `auto` settings, resolved before keys are computed. `sink.py`: where a stage writes.
- `execution/`: run one stage: reuse what exists under its key, compute what is missing, commit one manifest.
- `planning/`: what a run would do and why, and which outputs are fresh; nothing is computed.
- `order.py`: which stages a run includes. `needs.py`: memory, disk and time. `progress.py`: progress. `settings.py`:
  every setting, and those of the last run.
"""
