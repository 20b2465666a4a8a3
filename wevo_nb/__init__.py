"""The helper package of the WebEvolver notebooks.

Importing it costs milliseconds: nothing heavy is loaded before it is used.
Read the modules in the order that CONTRIBUTING.md lists them.
"""

import warnings

# Of tqdm: bars are text here, which stays readable in a saved notebook.
warnings.filterwarnings("ignore", "IProgress not found")

__version__ = "0.1.0"
