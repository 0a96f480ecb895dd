"""The operators of frames that exchange rows, each in a module of its own."""
