"""The extension for IPython and Jupyter."""
