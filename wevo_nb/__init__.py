"""The helper package of the WebEvolver notebooks.

Importing it costs milliseconds: nothing heavy is loaded before it is used.
Read the modules in the order that CONTRIBUTING.md lists them.
"""

__version__ = "0.1.0"
