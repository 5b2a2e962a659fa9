"""First frame first: what the interface's process must not load."""

import json
import subprocess
import sys


def test_the_interface_imports_nothing_heavy():
    code = "import sys, json, app.tui.app; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(out))
    heavy = {"torch", "chromadb", "transformers", "sentence_transformers", "PIL", "numpy", "engine", "memory"}
    assert not loaded & heavy


def test_the_table_of_actions_needs_no_terminal():
    code = "import sys, app.actions, app.slash; assert 'textual' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
