"""The engine for machines with no GPU: real SGLang on CPU, a tiny model, HiCache transfers in plain torch.

install.py        builds it: `install()`
engine.py         finds it: `find()` gives a `CpuEngine`, all that a launch needs
build.py, pip.py  the steps of an installation, and what pip says meanwhile
requirements.txt  the pins of its own virtual environment; the harness and the engine never share one
model.py          makes the model and its tokenizer, run by the engine's Python
verify.py         imports what a launch imports, run by the engine's Python
shim/             what makes SGLang run on CPU, on PYTHONPATH of every launch; it lists what it replaces
"""
